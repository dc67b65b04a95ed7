// derated's metrics, read back from their text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/metric_text.h"
#include "base/result.h"

namespace derate::agent {

struct MetricPoint {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;

  bool operator==(const MetricPoint&) const = default;
};

// As MetricFamily, with its samples.
struct ReadFamily {
  std::string name;  // without _total and _info
  MetricType type = MetricType::gauge;
  std::string unit = {}, help = {};
  std::vector<MetricPoint> points = {};

  bool operator==(const ReadFamily&) const = default;
};

// OpenMetrics 1.0 as MetricText writes it. Errors: bad_data with the line, also for a text whose
// end is missing.
Result<std::vector<ReadFamily>> read_open_metrics(std::string_view text);

}  // namespace derate::agent
