// Figures that others published of the same applications under the same policies, read from a CSV
// table and compared with an experiment's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

struct StageResult;  // lab/figures.h

// Of one application under one policy, against the highest clock, as ratios.
struct PublishedFigure {
  std::string policy;  // the experiment's label of it
  std::string app;
  double efficiency = 1, performance = 1;
};

// A table "app,eff_NAME,...,perf_NAME,..."; NAME is a label's letters and digits, whatever the
// case. Columns of other policies are left out. Errors: bad_data naming FILE:LINE and the value;
// bad_config when no column is of a policy of `labels`.
Result<std::vector<PublishedFigure>> parse_published_figures(
    std::string_view csv, std::string_view file, const std::vector<std::string>& labels);

// One of them beside an experiment's figure.
struct BesidePublished {
  PublishedFigure published;
  double gain = 0, loss = 0;  // the experiment's

  double gain_difference() const { return gain - (published.efficiency - 1); }
  double loss_difference() const { return loss - (1 - published.performance); }
  double largest_difference() const;
};

// Those that the stage has, in the order of the published table: policies, then applications.
std::vector<BesidePublished> beside_published(const StageResult& stage,
                                              const std::vector<PublishedFigure>& published);

}  // namespace derate
