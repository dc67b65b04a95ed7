// The names and labels of dcgm-exporter, so that dashboards that were made for it work. Unlike it,
// who shares a GPU has the power and energy that are its own: the rows of a GPU add up to its
// board's.
#pragma once

#include <span>

#include "base/metric_text.h"
#include "service/records/metric_catalogue.h"

namespace derate {

inline constexpr const char* kDcgmLabels =
    "gpu, UUID, device, modelName, Hostname, GPU_I_PROFILE, GPU_I_ID, container, namespace, pod, "
    "hpc_job";

struct DcgmMetric {
  // Which rows of a GPU it has.
  enum class Kind : std::uint8_t {
    board,     // what is true of all of it: one row an owner, or one
    activity,  // one row an instance that has its own, else one for all
    power,     // the owner's own, and one row of what is nobody's
    energy,    // the same
  };
  MetricFamily family;
  Kind kind;
  std::optional<double> (*of_gpu)(const MetricGpu&) = nullptr;      // board, and activity without
  std::optional<double> (*of_activity)(const Activity&) = nullptr;  // for activity
};
std::span<const DcgmMetric> dcgm_metrics();

void write_dcgm_metrics(MetricText& text, std::span<const MetricGpu> gpus,
                        const MetricsOptions& options);

}  // namespace derate
