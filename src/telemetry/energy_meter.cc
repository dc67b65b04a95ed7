#include "telemetry/energy_meter.h"

namespace derate {

void EnergyMeter::add(const Sample& sample) {
  if (!first_) first_ = sample.time;
  odometer_.add(sample);
  any_power_ |= board_power(sample).has_value();
  totals_ = odometer_.totals(odometer_.mark(sample.time));
}

bool EnergyMeter::from_counter() const {
  return totals_.counted > Duration::zero() && totals_.resets == 0 &&
         totals_.still == Duration::zero();
}

std::optional<Joules> EnergyMeter::total() const {
  if (!any_power_ && totals_.counted == Duration::zero()) return std::nullopt;
  return totals_.energy;
}

std::optional<Joules> EnergyMeter::integrated() const {
  if (!any_power_) return std::nullopt;
  return totals_.integrated;
}

std::optional<Watts> EnergyMeter::mean_reading() const {
  const Duration lit = elapsed() - totals_.dark;
  if (!any_power_ || lit <= Duration::zero()) return std::nullopt;
  return totals_.integrated / lit;
}

std::optional<Watts> EnergyMeter::mean_power() const {
  const auto joules = total();
  const Duration covered = elapsed() - totals_.uncovered;  // a hole's joules are not in the total
  if (!joules || covered <= Duration::zero()) return std::nullopt;
  return *joules / covered;
}

}  // namespace derate
