// Xid errors as events. A set has, of each GPU that is registered with it, how many were delivered.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::nvml {

struct EventState {
  std::mutex mutex;
  std::map<unsigned int, std::uint64_t> delivered;  // by GPU
};

}  // namespace derate::nvml

namespace derate::fakenvml {
namespace {

using nvml::EventSet, nvml::Return;

std::optional<nvml::EventData> next_event(const Call& call, nvml::EventState& set) {
  const std::lock_guard lock(set.mutex);
  for (auto& [gpu, delivered] : set.delivered) {
    const auto now = call.client->state().gpu[gpu].now.read();
    if (!now) continue;
    if (delivered > now->xids.count) delivered = 0;  // of another server
    // Older ones are not kept.
    if (now->xids.count > kXidsKept) delivered = std::max(delivered, now->xids.count - kXidsKept);
    if (delivered == now->xids.count) continue;
    return nvml::EventData{.device = handle_of(gpu),
                           .type = nvml::kEventXid,
                           .data = now->xids.newest[delivered++ % kXidsKept],
                           .gpu_instance = kNone,
                           .compute_instance = kNone};
  }
  return std::nullopt;
}

}  // namespace

GIVES(nvmlDeviceGetSupportedEventTypes, ulonglong, nvml::kEventXid)

Return nvmlEventSetCreate(EventSet* out) {
  return guarded(__func__, [&](const Call&) {
    if (out == nullptr) return Return::invalid_argument;
    *out = new nvml::EventState;
    return Return::success;
  });
}
Return nvmlEventSetFree(EventSet set) {
  delete set;
  return Return::success;
}
Return nvmlDeviceRegisterEvents(Device device, ulonglong types, EventSet set) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (set == nullptr || (types & ~nvml::kEventXid) != 0) return Return::invalid_argument;
    const std::lock_guard lock(set->mutex);
    if (types != 0) set->delivered.try_emplace(call.gpu, now.xids.count);
    return Return::success;
  });
}
// It also delivers what GPUs report that are lost.
Return nvmlEventSetWait_v2(EventSet set, nvml::EventData* out, uint timeout_ms) {
  constexpr std::chrono::milliseconds kEvery(10);
  return guarded(__func__, [&](const Call& call) {
    if (set == nullptr || out == nullptr) return Return::invalid_argument;
    SystemClock clock;
    const Instant end = clock.now() + std::chrono::milliseconds(timeout_ms);
    for (;;) {
      if (const auto event = next_event(call, *set)) {
        *out = *event;
        return Return::success;
      }
      if (clock.now() >= end) return Return::timeout;
      (void)clock.sleep_until(std::min(end, clock.now() + kEvery));
    }
  });
}

}  // namespace derate::fakenvml
