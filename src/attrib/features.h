// Power features of a tenant, the inputs of a power model: the busy share of each kind of unit, in
// parts of the whole GPU.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "attrib/tick.h"

namespace derate {

// SM, tensor, FP32, FP64, integer, DRAM, in this order.
inline constexpr std::size_t kPowerFeatures = 6;
using PowerFeatures = std::array<double, kPowerFeatures>;

// Within 0..1; what is missing, negative or not finite is 0, what is above 1 is 1.
double clean_share(std::optional<Fraction> share);

// What can be used of a tenant: counters need its SM activity, time shares its SM utilisation;
// without them only what it holds is known, whatever the tick promises.
SignalKind usable_signal(const TenantTick& tenant);

// Whether anything says that it is there: a context, or activity of any kind.
bool is_present(const TenantTick& tenant);

// The mean power of the tick, W; empty where the energy is missing or is none that a board draws.
std::optional<double> board_watts(const AttribTick& tick);

// clock / highest, at most 1; 1 where either is missing or no positive number.
double clock_ratio(std::optional<Megahertz> clock, std::optional<Megahertz> highest);

inline constexpr double kClockExponent = 2.2;
// (clock / highest)^kClockExponent, at most 1: how much less a busy core draws at a lower clock and
// the lower voltage that goes with it. The exponent is assumed; filters learn what it is off. 1
// where either clock is missing or no positive number.
double core_scale(std::optional<Megahertz> clock, std::optional<Megahertz> highest);

// Activity times what is held of the GPU, all but DRAM times `core_scale`.
PowerFeatures power_features(const Activity& activity, Fraction share, Fraction memory_share,
                             double core_scale);

// By what is usable: its counters; or its time shares as SM and DRAM; or what it holds as SM and
// DRAM while it has a context.
PowerFeatures power_features(const TenantTick& tenant, double core_scale);

}  // namespace derate
