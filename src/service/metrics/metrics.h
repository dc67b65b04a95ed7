// Metrics of a snapshot as text, for Prometheus and what reads its formats.
#pragma once

#include <string>

#include "service/metrics/metric_catalogue.h"

namespace derate {

// Every metric of the catalogue (metric_catalogue.h) of which something is known; for any
// thread.
std::string metrics_text(const Snapshot& snapshot, const MetricsOptions& options);

}  // namespace derate
