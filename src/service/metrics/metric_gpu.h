// A GPU as its metrics are read: what of the snapshot still says something of now.
#pragma once

#include <optional>
#include <vector>

#include "base/metric_text.h"
#include "service/records/snapshot.h"

namespace derate {

// One GPU as its metrics are read. What it points to outlives it.
struct MetricGpu {
  const GpuId* id = nullptr;
  const GpuSnapshot* here = nullptr;     // null: it was open before and is not now
  const GpuTotals* totals = nullptr;     // null: they are not kept
  const TenantTable* tenants = nullptr;  // null: its energy is not attributed
  const Sample* sample = nullptr;        // null: what was read last is old, or could not be read
  Activity activity;                     // of late
  std::optional<int> processes;          // of late
  bool lost = false, stuck = false;
  bool tick_is_fresh = false;  // what tenants drew in the newest tick is what they draw now
  Instant now{};
  MetricLabels labels;  // gpu, uuid, pci
};
// In the quantity's own unit times `scale`.
template <class Q>
std::optional<double> metric_value(const std::optional<Q>& quantity, double scale = 1) {
  return quantity ? std::optional(quantity->value() * scale) : std::nullopt;
}
template <class Q>
std::optional<double> metric_value(const MetricGpu& gpu, std::optional<Q> Sample::*field,
                                   double scale = 1) {
  return gpu.sample == nullptr ? std::nullopt : metric_value(gpu.sample->*field, scale);
}

// Of each GPU of the snapshot, the lost and the closed ones last.
std::vector<MetricGpu> metric_gpus(const Snapshot& snapshot, Instant now);

}  // namespace derate
