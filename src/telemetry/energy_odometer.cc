#include "telemetry/energy_odometer.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// No board draws it: power above that is "not available" in every reading (docs/sensors.md).
constexpr Watts kMostPower{10000};
// All known counters move in steps of 0.1 s: two readings close together may contain the energy of
// a longer time. Assumed: no counter takes longer than this.
constexpr Duration kCounterPace = std::chrono::seconds(1);

// How far power and time had come at `mark`.
void set_time(EnergyTotals& totals, const EnergyOdometer::Mark& mark) {
  totals.time = mark.time;
  totals.integrated = mark.integrated;
  totals.dark = mark.dark;
}

// Totals at `mark`, from `from` on by power alone.
EnergyTotals by_power(EnergyTotals from, const EnergyOdometer::Mark& mark) {
  from.energy += mark.integrated - from.integrated;
  from.uncovered += mark.dark - from.dark;
  set_time(from, mark);
  return from;
}

// Totals at `mark` between two readings of the counter.
EnergyTotals by_counter(const EnergyTotals& from, const EnergyTotals& to,
                        const EnergyOdometer::Mark& mark) {
  EnergyTotals out = from;
  const bool all_lit = to.dark == from.dark;
  const Joules power = to.integrated - from.integrated;
  const double share = to.time == from.time ? 1
                       : all_lit && power > Joules(0)
                           ? (mark.integrated - from.integrated) / power
                           : seconds(mark.time - from.time) / seconds(to.time - from.time);
  out.energy += (to.energy - from.energy) * std::clamp(share, 0.0, 1.0);
  out.counted += mark.time - from.time;
  if (all_lit) {
    out.checked_counter += out.energy - from.energy;
    out.checked_integrated += mark.integrated - from.integrated;
    out.checked += mark.time - from.time;
  }
  set_time(out, mark);
  return out;
}

}  // namespace

std::optional<Watts> board_power(const Sample& sample) {
  if (sample.power_instant) return sample.power_instant;
  if (sample.power_usage) return sample.power_usage;
  return sample.power_average;
}

std::optional<double> check_ratio(const EnergyTotals& begin, const EnergyTotals& end) {
  const Joules counter = end.checked_counter - begin.checked_counter;
  if (end.checked - begin.checked < kLeastChecked || counter <= Joules(0)) return std::nullopt;
  return (end.checked_integrated - begin.checked_integrated) / counter;
}

bool is_agreement(double check_ratio) { return std::abs(check_ratio - 1) <= kMostDisagreement; }

void EnergyOdometer::advance(Instant time) {
  if (!now_) {
    now_ = time;
    last_.time = before_.time = time;
  }
  if (time <= *now_) return;
  const Instant held = power_ ? std::clamp(held_until_, *now_, time) : *now_;
  if (power_) integrated_ += *power_ * (held - *now_);
  dark_ += time - held;
  now_ = time;
}

bool EnergyOdometer::is_plausible(Joules counter, Duration span) const {
  return counter_ && counter >= *counter_ &&
         counter - *counter_ <= kMostPower * (span + kCounterPace);
}

// Totals at `mark`, by power since `from`, also if the counter stands still.
EnergyTotals EnergyOdometer::without_counter(const EnergyTotals& from, const Mark& mark) const {
  EnergyTotals out = by_power(from, mark);
  if (stands_still_) out.still += mark.time - from.time;
  return out;
}

void EnergyOdometer::take_counter(Joules counter) {
  const Mark here{*now_, integrated_, dark_, {}};
  last_span_counted_ = is_plausible(counter, here.time - last_.time);
  before_ = last_;
  last_ = without_counter(before_, here);
  stands_still_ = false;
  if (last_span_counted_) {
    last_.energy = before_.energy + (counter - *counter_);
    last_.uncovered = before_.uncovered;
    last_ = by_counter(before_, last_, here);
  } else if (counter_) {
    ++last_.resets;
  }
  counter_ = counter;
}

// From here on the energy is by power, until the counter has moved.
void EnergyOdometer::go_on_without_counter() {
  const Mark here{*now_, integrated_, dark_, {}};
  before_ = last_;
  stands_still_ = true;
  last_ = without_counter(before_, here);
  last_span_counted_ = false;
  counter_.reset();
}

bool EnergyOdometer::add(const Sample& sample) {
  if (now_ && sample.time < *now_) return false;
  advance(sample.time);
  power_ = board_power(sample);
  held_until_ = sample.time + max_gap_;
  seen_any_ = seen_any_ || power_ || sample.energy;
  if (!sample.energy) return false;
  switch (watch_.judge(*sample.energy, sample.time)) {
    case CounterWatch::Verdict::unmoved:
      return false;
    case CounterWatch::Verdict::still:
      go_on_without_counter();
      return true;
    case CounterWatch::Verdict::moved:
      break;
  }
  take_counter(*sample.energy);
  return true;
}

EnergyOdometer::Mark EnergyOdometer::mark(Instant time) {
  advance(time);
  Mark out{*now_, integrated_, dark_, {}};
  if (!counter_ || last_.time == *now_) out.settled = without_counter(last_, out);
  return out;
}

EnergyTotals EnergyOdometer::settle(const Mark& mark) const {
  if (mark.settled) return *mark.settled;
  return last_span_counted_ ? by_counter(before_, last_, mark) : without_counter(before_, mark);
}

EnergyTotals EnergyOdometer::totals(const Mark& mark) const {
  return mark.settled ? *mark.settled : by_power(last_, mark);
}

}  // namespace derate
