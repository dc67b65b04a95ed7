#include "device/nvml/gpm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "device/nvml/nvml_calls.h"

namespace derate {
namespace {

using nvml::Return;
namespace metric = nvml::gpm_metric;

struct Share {
  unsigned int id;
  std::optional<Fraction> Activity::*field;
};
struct Traffic {
  unsigned int id;
  std::optional<BytesPerSecond> Activity::*field;
};

constexpr Share kShares[] = {
    {metric::kGraphics, &Activity::graphics},   {metric::kSm, &Activity::sm},
    {metric::kOccupancy, &Activity::occupancy}, {metric::kInteger, &Activity::integer},
    {metric::kTensor, &Activity::tensor},       {metric::kDram, &Activity::dram},
    {metric::kFp64, &Activity::fp64},           {metric::kFp32, &Activity::fp32},
    {metric::kFp16, &Activity::fp16},
};
constexpr Traffic kTraffic[] = {
    {metric::kPcieTx, &Activity::pcie_tx},
    {metric::kPcieRx, &Activity::pcie_rx},
};
constexpr double kBytesPerMebibyte = 1024.0 * 1024.0;
constexpr double kMostMebibytes = 1e6;  // per second: 8 times the rate of 16 lanes of PCIe 6

// GPM of libnvidia-ml keeps state that all GPUs share, without a lock: nvmlGpmSampleGet of one GPU
// during nvmlGpmMetricsGet of another ends the program (two H200, 18 of 30 starts). So its callers
// take turns. The library is loaded once in a process however often it is opened, which is why the
// turn has static storage. It is no std::timed_mutex: the thread sanitizer of g++ 12 does not know
// how that one locks.
struct {
  std::mutex mutex;
  std::condition_variable given_back;
  bool is_taken = false;
  bool is_hung = false;  // the call that has the turn has outlasted the patience of another
} gpm_turn;
constexpr Duration kOpeningPatience = std::chrono::seconds(1);

class Turn {
 public:
  // Waits for a call that runs, and not for one that hangs.
  explicit Turn(Duration patience) {
    std::unique_lock<std::mutex> lock(gpm_turn.mutex);
    is_mine_ = gpm_turn.given_back.wait_for(lock, gpm_turn.is_hung ? Duration(0) : patience,
                                            [] { return !gpm_turn.is_taken; });
    (is_mine_ ? gpm_turn.is_taken : gpm_turn.is_hung) = true;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!is_mine_) return;
    {
      const std::lock_guard<std::mutex> lock(gpm_turn.mutex);
      gpm_turn.is_taken = gpm_turn.is_hung = false;
    }
    gpm_turn.given_back.notify_one();
  }
  bool is_mine() const { return is_mine_; }

 private:
  bool is_mine_ = false;
};

std::optional<double> value_of(const nvml::GpmMetric& metric) {
  const bool sound = std::isfinite(metric.value) && metric.value >= 0;
  if (metric.code != Return::success || !sound) return std::nullopt;
  return metric.value;
}

Activity activity_of(const nvml::GpmMetrics& answer, bool zeros_are_true) {
  Activity activity;
  bool any = false;
  const nvml::GpmMetric* next = answer.metrics;
  for (const Share& share : kShares) {
    const auto value = value_of(*next++);
    if (value) activity.*share.field = nvml_share(*value);
    any = any || value.value_or(0) != 0;
  }
  for (const Traffic& traffic : kTraffic) {
    const auto value = value_of(*next++);
    if (value && *value <= kMostMebibytes)
      activity.*traffic.field = BytesPerSecond(*value * kBytesPerMebibyte);
    any = any || value.value_or(0) != 0;
  }
  return any || zeros_are_true ? activity : Activity{};
}

}  // namespace

Result<std::unique_ptr<Gpm>> Gpm::create(const NvmlLibrary& library, nvml::Device device,
                                         const GpmOptions& options) {
  const NvmlFunctions& nvml = library.functions();
  const bool samples =
      options.gpu_instance ? nvml.gpm_mig_sample != nullptr : nvml.gpm_sample != nullptr;
  if (!nvml.gpm_support || !nvml.gpm_alloc || !nvml.gpm_free || !samples || !nvml.gpm_metrics)
    return Error{Errc::not_supported, "this driver has no GPM"};

  const Turn turn(std::max(options.patience, kOpeningPatience));
  if (!turn.is_mine()) return Error{Errc::busy, "a GPM call of another GPU has not come back"};
  nvml::GpmSupport support{nvml::kGpmSupportVersion, 0};
  if (const Return code = nvml.gpm_support(device, &support); code != Return::success)
    return library.error(code, "nvmlGpmQueryDeviceSupport");
  if (support.supported == 0) return Error{Errc::not_supported, "this GPU has no GPM"};

  nvml::GpmSample older = nullptr, newer = nullptr;
  Return code = nvml.gpm_alloc(&older);
  if (code == Return::success) code = nvml.gpm_alloc(&newer);
  if (code == Return::success)
    return std::unique_ptr<Gpm>(new Gpm(library, device, options, older, newer));
  if (older != nullptr) nvml.gpm_free(older);
  return library.error(code, "nvmlGpmSampleAlloc");
}

Gpm::~Gpm() {
  const Turn turn(options_.patience);
  if (!turn.is_mine()) return;  // the buffers are left behind, as the call that hangs is
  for (nvml::GpmSample sample : {older_, newer_}) library_.functions().gpm_free(sample);
}

Result<void> Gpm::take_sample() {
  const NvmlFunctions& nvml = library_.functions();
  const Return code = options_.gpu_instance
                          ? nvml.gpm_mig_sample(device_, *options_.gpu_instance, newer_)
                          : nvml.gpm_sample(device_, newer_);
  if (code == Return::success) return {};
  return library_.error(code, options_.gpu_instance ? "nvmlGpmMigSampleGet" : "nvmlGpmSampleGet");
}

Result<Activity> Gpm::read(Instant now) {
  if (older_time_ && now - *older_time_ < kGpmWindow) return Activity{};
  const Turn turn(options_.patience);
  if (!turn.is_mine()) return Activity{};
  TRY(take_sample());

  // The new sample begins the next window, whatever comes of this one.
  std::swap(older_, newer_);
  const std::optional<Instant> before = std::exchange(older_time_, now);
  if (!before) return Activity{};

  nvml::GpmMetrics query{};
  query.version = nvml::kGpmMetricsVersion;
  query.older = newer_;
  query.newer = older_;
  for (const Share& share : kShares) query.metrics[query.count++].id = share.id;
  for (const Traffic& traffic : kTraffic) query.metrics[query.count++].id = traffic.id;
  const Return code = library_.functions().gpm_metrics(&query);
  if (code != Return::success) return library_.error(code, "nvmlGpmMetricsGet");
  return activity_of(query, now - *before >= options_.zeros_after);
}

}  // namespace derate
