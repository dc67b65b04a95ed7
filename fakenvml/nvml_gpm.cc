// GPM: a sample keeps the sums of the counters, and metrics are the differences of two samples.
#include <algorithm>
#include <iterator>
#include <new>

#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::nvml {

struct GpmSampleState {
  bool taken = false;
  unsigned int gpu = 0;
  unsigned int instance = nvml::kNoInstance;
  double windows = 0;  // of MIG instances: seconds, as all below
  double known[fakenvml::kActivityShares] = {};
  double sums[fakenvml::kActivityShares] = {};
};

}  // namespace derate::nvml

namespace derate::fakenvml {
namespace {

using nvml::Return;
namespace metric = nvml::gpm_metric;

// In the order of the sums: activity_shares().
constexpr unsigned int kMetrics[kActivityShares] = {
    metric::kGraphics, metric::kSm,   metric::kOccupancy, metric::kInteger, metric::kTensor,
    metric::kDram,     metric::kFp64, metric::kFp32,      metric::kFp16,
};
// Measured on an H200: ids of 1 to 209 succeed, known or not, and one other fails the whole call.
constexpr unsigned int kLastMetric = 209;

// A window without a step of the counters, and a share that is not known, read zero.
double value_of(const nvml::GpmMetrics& query, unsigned int id) {
  const auto* const at = std::find(std::begin(kMetrics), std::end(kMetrics), id);
  if (at == std::end(kMetrics)) return 0;
  const auto share = at - std::begin(kMetrics);
  const double windows = query.newer->windows - query.older->windows;
  const double known = query.newer->known[share] - query.older->known[share];
  constexpr double kAll = 1 - 1e-6;  // seconds are sums of steps
  if (windows <= 0 || known < windows * kAll) return 0;
  const double sum = query.newer->sums[share] - query.older->sums[share];
  return 100 * sum / windows;
}

bool valid(const nvml::GpmMetrics& query) {
  if (query.older == nullptr || query.newer == nullptr || query.count > nvml::kGpmMetricMax)
    return false;
  if (!query.older->taken || !query.newer->taken || query.older->gpu != query.newer->gpu)
    return false;
  if (query.older->instance != query.newer->instance) return false;
  if (query.newer->windows < query.older->windows) return false;
  return std::all_of(query.metrics, query.metrics + query.count,
                     [](const auto& one) { return one.id >= 1 && one.id <= kLastMetric; });
}

}  // namespace

Return nvmlGpmQueryDeviceSupport(Device device, nvml::GpmSupport* out) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    if (out->version != nvml::kGpmSupportVersion) return Return::argument_version_mismatch;
    out->supported = call.identity().has_activity;
    return Return::success;
  });
}

Return nvmlGpmSampleAlloc(nvml::GpmSample* out) {
  return guarded(__func__, [&](const Call&) {
    if (out == nullptr) return Return::invalid_argument;
    *out = new nvml::GpmSampleState;
    return Return::success;
  });
}

Return nvmlGpmSampleFree(nvml::GpmSample sample) {
  return guarded(__func__, [&](const Call&) {
    if (sample == nullptr) return Return::invalid_argument;
    delete sample;
    return Return::success;
  });
}

Return nvmlGpmSampleGet(Device device, nvml::GpmSample sample) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (sample == nullptr) return Return::invalid_argument;
    // Assumed: MIG instances leave the counters of the whole GPU, the fault takes them, too.
    const bool taken = (now.faults & 1u << static_cast<std::uint32_t>(GpuFault::mig)) != 0;
    if (call.identity().has_activity == 0 || taken) return Return::not_supported;
    sample->taken = true;
    sample->gpu = call.gpu;
    sample->instance = nvml::kNoInstance;
    sample->windows = static_cast<double>(now.windows);
    std::copy(std::begin(now.known), std::end(now.known), sample->known);
    std::copy(std::begin(now.sums), std::end(now.sums), sample->sums);
    return Return::success;
  });
}

Return nvmlGpmMigSampleGet(Device device, uint instance, nvml::GpmSample sample) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (sample == nullptr) return Return::invalid_argument;
    if (call.identity().has_activity == 0 || now.mig == 0) return Return::not_supported;
    const auto all = call.state().instances.read();
    if (!all) return Return::gpu_is_lost;
    if (const auto injected = call.injected(Reading::instance_sample, 0, instance))
      return static_cast<Return>(injected->code);
    for (std::uint64_t i = 0; i < all->count; ++i) {
      const InstanceNow& one = all->list[i];
      if (one.id != instance) continue;
      *sample = {.taken = true, .gpu = call.gpu, .instance = instance, .windows = one.seconds};
      std::copy(std::begin(one.known), std::end(one.known), sample->known);
      std::copy(std::begin(one.busy), std::end(one.busy), sample->sums);
      return Return::success;
    }
    return Return::invalid_argument;
  });
}

Return nvmlGpmMetricsGet(nvml::GpmMetrics* query) {
  return guarded(__func__, [&](Call& call) {
    if (query == nullptr) return Return::invalid_argument;
    if (query->version != nvml::kGpmMetricsVersion) return Return::argument_version_mismatch;
    if (!valid(*query)) return Return::invalid_argument;
    call.gpu = query->newer->gpu;
    for (unsigned int i = 0; i < query->count; ++i) {
      nvml::GpmMetric& metric = query->metrics[i];
      const auto injected = call.injected(Reading::metric, metric.id, query->newer->instance);
      metric.code = injected ? static_cast<Return>(injected->code) : Return::success;
      metric.value = injected ? injected->number : value_of(*query, metric.id);
    }
    return Return::success;
  });
}

}  // namespace derate::fakenvml
