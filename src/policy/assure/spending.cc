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

Saving Spending::would_be(const Ratio& time, const Ratio& energy) const {
  Saving out = unsaved();
  for (const auto& [step, spent] : by_x_) {
    const Belief t = time(kStep * step), e = energy(kStep * step);
    out += {.energy = spent.energy * std::exp(-e.mean),
            .energy_at_highest = spent.energy,
            .energy_sd = spent.energy * e.sd,
            .time = from_seconds(seconds(spent.time) * std::exp(-t.mean)),
            .time_at_highest = spent.time,
            .time_sd = from_seconds(seconds(spent.time) * t.sd)};
  }
  return out;
}

}  // namespace derate
