// Savings of energy and time: the cost of work against that of the same work at the highest clock,
// an estimate.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace derate {

// Standard deviations of a normal distribution, to either side, in which 90 % lie.
inline constexpr double kNinety = 1.645;

// A share, and where it lies with 90 % probability.
struct ShareEstimate {
  double mean = 0, low = 0, high = 0;

  bool operator==(const ShareEstimate&) const = default;
};

// Sums over time, jobs and GPUs. Standard deviations are added, not their squares: a curve that is
// wrong about a phase is wrong in the same direction in all of it.
struct Saving {
  Joules energy{}, energy_at_highest{}, energy_sd{};  // `_sd`: of what is estimated
  Duration time{}, time_at_highest{}, time_sd{};

  Saving& operator+=(const Saving& more);
  Saving& operator-=(const Saving& less);
  bool operator==(const Saving&) const = default;
};

// The energies of one, in whole millijoules: however they are divided, the parts add up. Some may
// be negative, since what is believed changes.
struct SavingSums {
  std::int64_t energy_mj = 0, at_highest_mj = 0, sd_mj = 0;

  void add(const SavingSums& more);
  bool operator==(const SavingSums&) const = default;
};
SavingSums saving_sums(const Saving& saving);
Saving saving_of(const SavingSums& sums);  // without times

// Energies, and where they lie with 90 % probability.
struct EnergyEstimate {
  Joules mean{}, low{}, high{};

  bool operator==(const EnergyEstimate&) const = default;
};
// Energy at the highest clock - energy. Empty where nothing was used.
std::optional<EnergyEstimate> energy_saved(const Saving& saving);

// 1 - energy / energy at the highest clock. Empty where nothing was used.
std::optional<ShareEstimate> energy_saving(const Saving& saving);
// The saved part of what would have been used at the highest clock: saved / (used + saved). `used`
// is all energy of the same GPUs and time. Of it `saving.energy` was used while a saving was
// estimated; the rest has saved nothing. Empty where no saving was estimated.
std::optional<ShareEstimate> saved_share(Joules used, const Saving& saving);
// Work done by time, relative to the highest clock: at most 1. Empty where no time went by.
std::optional<ShareEstimate> performance(const Saving& saving);

}  // namespace derate
