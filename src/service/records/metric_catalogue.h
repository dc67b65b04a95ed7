// The one table of metrics: their text, docs/metrics.md and clients/metrics.json come from it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/metric_text.h"
#include "service/records/metrics.h"

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

std::vector<MetricGpu> metric_gpus(const Snapshot& snapshot, Instant now);

// Where the samples of one GPU, or of the service, go. A value that is missing is no sample.
class MetricSamples {
 public:
  MetricSamples(MetricText& text, const MetricLabels& labels) : text_(text), labels_(labels) {}
  void add(std::optional<double> value) { add({}, value); }
  void add(const MetricLabels& more, std::optional<double> value) {
    if (value) text_.add(labels_, more, *value);
  }

 private:
  MetricText& text_;
  const MetricLabels& labels_;
};

using ReadMetricService = void (*)(const Snapshot&, const MetricsOptions&, MetricSamples&);
using ReadMetricGpu = void (*)(const MetricGpu&, MetricSamples&);

struct Metric {
  MetricFamily family;
  const char* labels;  // beside those of each GPU: "reason", "tenant"; empty: none
  std::variant<ReadMetricService, ReadMetricGpu> read;
};
std::span<const Metric> service_metrics();
std::span<const Metric> gpu_metrics();
std::span<const Metric> tenant_metrics();

// The tables of docs/metrics.md.
std::string metrics_markdown();
// A row each: {"name","type","unit","help","labels","of"}.
nlohmann::ordered_json metrics_json();

}  // namespace derate
