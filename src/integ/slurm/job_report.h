// Sums of jobs' energy, savings and promises by account, user or job.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "integ/slurm/job_comment.h"

namespace derate {

enum class ReportBy : std::uint8_t { account, user, job };
// Errors: invalid_argument naming what there is.
Result<ReportBy> parse_report_by(std::string_view name);

struct ReportJob {
  std::string shown, user, account;  // "4711" or "4700_11"
  std::optional<JobEnergy> energy;   // empty: no account of it was found
};

struct ReportLine {
  std::string name;  // empty: jobs without an account
  int jobs = 0;
  int measured = 0;            // of which joules are known
  int partly = 0;              // of these, not on all of their nodes
  int promised = 0, kept = 0;  // jobs that had a promise of which it is known, and that kept it
  double joules = 0;
  std::optional<double> saved_joules, saved_sd_joules;

  void add(const ReportJob& job);
  bool operator==(const ReportLine&) const = default;
};

// The largest first, the one without a name last.
std::vector<ReportLine> report_by(ReportBy by, const std::vector<ReportJob>& jobs);

}  // namespace derate
