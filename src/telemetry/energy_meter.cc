#include "telemetry/energy_meter.h"

namespace derate {

std::optional<Watts> board_power(const Sample& sample) {
  if (sample.power_instant) return sample.power_instant;
  if (sample.power_usage) return sample.power_usage;
  return sample.power_average;
}

void EnergyMeter::add(const Sample& sample) {
  if (last_) {
    const Duration span = sample.time - last_->time;
    if (span > max_gap_ || !last_power_) {
      uncovered_ += span;
      uncovered_since_counter_ += span;
    } else {
      integrated_ += *last_power_ * span;
      integrated_time_ += span;
      integrated_since_counter_ += *last_power_ * span;
    }
  } else {
    first_ = sample;
  }
  add_counter(sample);
  last_power_ = board_power(sample);
  any_power_ |= last_power_.has_value();
  last_ = sample;
}

void EnergyMeter::add_counter(const Sample& sample) {
  if (!sample.energy) return;
  if (counter_ && *sample.energy >= *counter_) {
    counted_ += *sample.energy - *counter_;
    uncovered_ -= uncovered_since_counter_;
    ++counter_spans_;
  } else {
    // The counter starts here, or anew: what lies before it is by power.
    counted_ += integrated_since_counter_;
    counter_resets_ += counter_ ? 1 : 0;
  }
  counter_ = sample.energy;
  integrated_since_counter_ = Joules();
  uncovered_since_counter_ = Duration::zero();
}

std::optional<Joules> EnergyMeter::total() const {
  if (!any_power_ && counter_spans_ == 0) return std::nullopt;
  return counted_ + integrated_since_counter_;
}

std::optional<Joules> EnergyMeter::integrated() const {
  if (!any_power_) return std::nullopt;
  return integrated_;
}

std::optional<Watts> EnergyMeter::mean_reading() const {
  if (integrated_time_ <= Duration::zero()) return std::nullopt;
  return integrated_ / integrated_time_;
}

Duration EnergyMeter::elapsed() const { return first_ ? last_->time - first_->time : Duration(); }

std::optional<Watts> EnergyMeter::mean_power() const {
  const auto joules = total();
  const Duration covered = elapsed() - uncovered_;  // a hole's joules are not in the total
  if (!joules || covered <= Duration::zero()) return std::nullopt;
  return *joules / covered;
}

}  // namespace derate
