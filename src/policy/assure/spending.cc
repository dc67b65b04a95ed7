#include "policy/assure/spending.h"

#include <cmath>

namespace derate {
namespace {

constexpr double kStep = 0.01;  // of x: a clock in a hundred

}  // namespace

void Spending::add(double x, const Spent& spent) {
  time_ += spent.time;
  by_x_[static_cast<int>(std::lround(x / kStep))].add(spent);
}

void Spending::add(const Spending& more) {
  time_ += more.time_;
  unsaved_.add(more.unsaved_);
  for (const auto& [x, spent] : more.by_x_) by_x_[x].add(spent);
}

Saving Spending::unsaved() const {
  return {.energy = unsaved_.energy,
          .energy_at_highest = unsaved_.energy,
          .time = unsaved_.time,
          .time_at_highest = unsaved_.time};
}

Saving Spending::saving(const Ratio& time, const Ratio& energy) const {
  Saving out = unsaved();
  for (const auto& [step, spent] : by_x_) {
    const Belief t = time(kStep * step), e = energy(kStep * step);
    const Duration time_there = from_seconds(seconds(spent.time) * std::exp(t.mean));
    const Joules energy_there = spent.energy * std::exp(e.mean);
    out += {.energy = spent.energy,
            .energy_at_highest = energy_there,
            .energy_sd = energy_there * e.sd,
            .time = spent.time,
            .time_at_highest = time_there,
            .time_sd = from_seconds(seconds(time_there) * t.sd)};
  }
  return out;
}

Saving Spending::would_be(const ShareEstimate& saved, const ShareEstimate& lost) const {
  Saving out = unsaved();
  Spent all;
  for (const auto& [step, spent] : by_x_) all.add(spent);
  // For the energy that would be used, what the highest clock takes lies between these two.
  const double least = 1 / (1 - saved.low), most = 1 / (1 - saved.high);
  const Joules used = all.energy * (2 / (least + most));
  const double slowest = 1 - lost.high, fastest = 1 - lost.low;
  const double taken = seconds(all.time) * 2 / (slowest + fastest);
  out += {.energy = used,
          .energy_at_highest = all.energy,
          .energy_sd = used * ((most - least) / 2 / kNinety),
          .time = from_seconds(taken),
          .time_at_highest = all.time,
          .time_sd = from_seconds(taken * (fastest - slowest) / 2 / kNinety)};
  return out;
}

}  // namespace derate
