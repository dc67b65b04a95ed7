// What a tenant's counters say of its power: the shares of the GPU's units that it keeps busy.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "attrib/tick.h"

namespace derate {

inline constexpr std::size_t kWattFeatures = 6;
// By place: SM, tensor, FP32, FP64, INT, DRAM.
using WattFeatures = std::array<double, kWattFeatures>;

// A counter is per elapsed cycle and a cycle's energy goes with the voltage squared: watts per busy
// unit go with about f V^2, here (f / highest)^2.2 (the study's section 3.1). Memory has a clock of
// its own. 1 where a clock is not known.
double core_factor(const AttribTick& tick, std::optional<Megahertz> highest);

// Of the whole GPU's units at the highest clock: the instance's own activity times its share.
// Counters that are missing count as 0. Empty where the tenant has no activity at all.
std::optional<WattFeatures> watt_features(const TenantTick& tenant, double core_factor);

}  // namespace derate
