#include "core/knob.h"

#include <algorithm>
#include <array>

namespace derate {
namespace {

constexpr double kMegahertzMost = 10'000, kMemoryMegahertzMost = 40'000, kWattsMost = 10'000;

// NVML has no getter for clock locks. Drivers keep whole milliwatts, some of them whole watts.
constexpr auto found = KnobInfo::Restore::found, configured = KnobInfo::Restore::configured;
constexpr std::array kGpuKnobs{
    KnobInfo{kMemoryLock, "memory lock", "MHz", false, configured, kMemoryMegahertzMost, 1},
    KnobInfo{kClockLock, "lock", "MHz", false, configured, kMegahertzMost, 1},
    KnobInfo{kApplicationClock, "application clock", "MHz", true, found, kMegahertzMost, 1},
    KnobInfo{kApplicationMemoryClock, "application memory clock", "MHz", true, found,
             kMemoryMegahertzMost, 1},
    KnobInfo{kPowerLimit, "power limit", "W", true, found, kWattsMost, 1},
};

}  // namespace

std::span<const KnobInfo> gpu_knobs() { return kGpuKnobs; }

std::span<const KnobInfo> knobs_of(std::string_view kind) {
  return kind == kGpuKind ? gpu_knobs() : std::span<const KnobInfo>{};
}

const KnobInfo* find_knob(std::span<const KnobInfo> knobs, std::string_view name) {
  const auto at = std::find_if(knobs.begin(), knobs.end(),
                               [&](const KnobInfo& one) { return one.name == name; });
  return at == knobs.end() ? nullptr : &*at;
}

}  // namespace derate
