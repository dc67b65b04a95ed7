// Metrics of a snapshot as text, for Prometheus and what reads its formats.
#pragma once

#include <string>

#include "base/metric_text.h"
#include "service/records/snapshot.h"

namespace derate {

struct MetricsOptions {
  MetricFormat format = MetricFormat::prometheus;
  bool tenants = true;      // rows of tenants, too
  bool dcgm_names = false;  // DCGM_FI_* beside our own names
  std::string version;      // of the program
  std::string hostname;     // for DCGM's label of that name; empty: none
  Instant now{};            // on the clock of the snapshot: ages are told by it
};

// Every metric of the catalogue (metric_catalogue.h) of which something is known; for any
// thread.
std::string metrics_text(const Snapshot& snapshot, const MetricsOptions& options);

}  // namespace derate
