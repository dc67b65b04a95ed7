// The one table of metrics: their text comes from it, and by service_metrics_test docs/metrics.md
// and clients/metrics.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/metric_text.h"
#include "service/metrics/metric_gpu.h"

namespace derate {

struct MetricsOptions {
  MetricFormat format = MetricFormat::prometheus;
  bool tenants = true;      // rows of tenants, too
  bool dcgm_names = false;  // DCGM_FI_* beside our own names
  bool dcgm_parts = false;  // DCGM's power and energy are the tenants' own, as in 0.1
  std::string version;      // of the program
  std::string hostname;     // for DCGM's label of that name; empty: none
  Instant now{};            // on the clock of the snapshot: ages are told by it
};

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
// Of a metric with one sample, or one a GPU.
using ReadServiceValue = std::optional<double> (*)(const Snapshot&);
using ReadMetricValue = std::optional<double> (*)(const MetricGpu&);

// A name of dcgm-exporter for the same quantity, so that existing dashboards work. As there, each
// row of a GPU that is shared or cut into instances has the board's power and energy. A tenant's
// own part has names of ours with the same labels, and its rows add up to the board.
struct DcgmName {
  // Which rows of a GPU it has.
  enum class Rows : std::uint8_t {
    board,     // what is true of all of it: one row an owner, or one
    activity,  // one row an instance that has its own, else one for all
    power,     // the owner's own, and one row of what is nobody's
    energy,    // the same
  };
  int place = 0;  // among DCGM's names in the text, from 1; 0: no name
  Rows rows = Rows::board;
  const char* name = "";
  const char* help = "";
  // Our value in DCGM's unit; null: it is in that unit.
  double (*in_unit)(double value) = nullptr;
  // A field of activity, which an instance has, too; null: it is the metric's own value.
  std::optional<double> (*of_activity)(const Activity&) = nullptr;
  MetricType type = MetricType::gauge;
  const char* unit = "";            // the value's unit if the name is ours; empty: DCGM's name
  std::optional<Rows> before = {};  // replaces `rows` if `dcgm_parts` is set
};

struct Metric {
  MetricFamily family;
  std::variant<ReadMetricService, ReadMetricGpu, ReadServiceValue, ReadMetricValue> read;
  const char* labels = "";  // in addition to those of each GPU: "reason", "tenant"
  std::array<DcgmName, 8> dcgm = {};
};
std::span<const Metric> service_metrics();
// Metrics of engines that serve language models: a sample a service (engine_metrics.cc).
std::span<const Metric> engine_metrics();
std::span<const Metric> gpu_metrics();
std::span<const Metric> tenant_metrics();

// DCGM's names with the metrics that have them, in their order in the text.
struct DcgmMetric {
  MetricFamily family;
  const DcgmName* name = nullptr;
  const Metric* metric = nullptr;
};
std::vector<DcgmMetric> dcgm_metrics();

// Every metric of which something is known, as Prometheus and what reads its formats want it; for
// any thread.
std::string metrics_text(const Snapshot& snapshot, const MetricsOptions& options);

}  // namespace derate
