#include "core/saving.h"

#include <algorithm>
#include <cmath>

#include "base/add_fields.h"

namespace derate {
namespace {

// f of the estimate and of its ends, ascending.
template <class F>
ShareEstimate spread(double mean, double sd, double least, F f) {
  const double reach = kNinety * std::max(0.0, sd);
  const double a = f(std::max(least, mean - reach)), b = f(mean + reach);
  return {f(mean), std::min(a, b), std::max(a, b)};
}

// f of the energy at the highest clock, and of its ends.
template <class F>
std::optional<ShareEstimate> at_highest(const Saving& saving, F f) {
  const double used = saving.energy.value(), highest = saving.energy_at_highest.value();
  if (used <= 0 || highest <= 0) return std::nullopt;
  // No work takes less than a thousandth of what it took here.
  const double least = used / 1000;
  return spread(std::max(highest, least), saving.energy_sd.value(), least, f);
}

}  // namespace

Saving& Saving::operator+=(const Saving& more) {
  energy += more.energy;
  energy_at_highest += more.energy_at_highest;
  energy_sd += more.energy_sd;
  time += more.time;
  time_at_highest += more.time_at_highest;
  time_sd += more.time_sd;
  return *this;
}

Saving& Saving::operator-=(const Saving& less) {
  energy -= less.energy;
  energy_at_highest -= less.energy_at_highest;
  energy_sd -= less.energy_sd;
  time -= less.time;
  time_at_highest -= less.time_at_highest;
  time_sd -= less.time_sd;
  return *this;
}

void SavingSums::add(const SavingSums& more) {
  add_fields(*this, more, &SavingSums::energy_mj, &SavingSums::at_highest_mj, &SavingSums::sd_mj);
}

SavingSums saving_sums(const Saving& saving) {
  const auto whole = [](Joules energy) {
    return std::int64_t{std::llround(energy.value() * 1000)};
  };
  return {whole(saving.energy), whole(saving.energy_at_highest), whole(saving.energy_sd)};
}

Saving saving_of(const SavingSums& sums) {
  const auto joules = [](std::int64_t mj) { return Joules(static_cast<double>(mj) / 1000); };
  return {.energy = joules(sums.energy_mj),
          .energy_at_highest = joules(sums.at_highest_mj),
          .energy_sd = joules(sums.sd_mj)};
}

std::optional<ShareEstimate> energy_saving(const Saving& saving) {
  const double used = saving.energy.value();
  return at_highest(saving, [&](double joules) { return 1 - used / joules; });
}

std::optional<EnergyEstimate> energy_saved(const Saving& saving) {
  const double used = saving.energy.value();
  const auto out = at_highest(saving, [&](double joules) { return joules - used; });
  if (!out) return std::nullopt;
  return EnergyEstimate{Joules(out->mean), Joules(out->low), Joules(out->high)};
}

std::optional<ShareEstimate> saved_share(Joules used, const Saving& saving) {
  const auto saved = energy_saved(saving);
  if (!saved) return std::nullopt;
  const Joules all = std::max(used, saving.energy);
  if (all + saved->low <= Joules(0)) return std::nullopt;
  const auto share = [&](Joules part) { return part / (all + part); };
  return ShareEstimate{share(saved->mean), share(saved->low), share(saved->high)};
}

std::optional<ShareEstimate> performance(const Saving& saving) {
  const double taken = seconds(saving.time);
  if (taken <= 0) return std::nullopt;
  return spread(seconds(saving.time_at_highest), seconds(saving.time_sd), 0,
                [&](double time) { return std::min(1.0, time / taken); });
}

}  // namespace derate
