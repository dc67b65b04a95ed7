#include "govern/ledger.h"

#include <algorithm>

namespace derate {

void Ledger::add_time(Duration held) {
  const double s = seconds(held);
  total_ += held;
  if (last_locked_)
    asked_[*last_locked_] += held;
  else
    released_ += held;
  // Without a lock the GPU's own control takes the top clock whenever there is work.
  ratio_seconds_ += s * std::min(1.0, last_locked_.value_or(highest_) / highest_);
  if (last_expected_) {
    expected_seconds_ += s * last_expected_->value();
    expected_time_ += s;
  }
  const ProgressSource source = source_of(last_progress_);
  if (source == ProgressSource::heartbeats) heartbeats_ += held;
  if (source == ProgressSource::launches) {
    launches_ += held;
    unsteadiness_seconds_ += s * last_progress_->rate_uncertainty;
  }
  if (last_in_step_) in_step_ += held;
  if (last_straggles_) straggled_ += held;
  if ((last_throttle_ & throttle::kSwPowerCap) != 0) capped_ += held;
  if ((last_throttle_ & throttle::kThermal) != 0) thermal_ += held;
}

void Ledger::add(const Record& record) {
  if (last_time_) add_time(record.time - *last_time_);
  ++ticks_;
  if (record.sample) {
    energy_.add(*record.sample);
    measured_.add(*record.sample);
    last_throttle_ = record.sample->throttle_reasons.value_or(0);
  } else {
    ++failed_reads_;
    last_error_ = record.sample_error;
  }
  switch (record.actuation.outcome) {
    case Actuation::Outcome::nothing:
      break;
    case Actuation::Outcome::shadow:
    case Actuation::Outcome::written:
    case Actuation::Outcome::released:
      ++writes_;
      break;
    case Actuation::Outcome::failed:
      ++failed_writes_;
      last_error_ = record.actuation.error;
      break;
    case Actuation::Outcome::waiting:
    case Actuation::Outcome::yielded:
      last_error_ = record.actuation.error;
      break;
  }
  if (record.saving) {
    if (!saving_) saving_.emplace();
    *saving_ += *record.saving;
  }
  last_time_ = record.time;
  last_locked_ = record.actuation.locked;
  last_expected_ = record.decision.expected_performance;
  const WorkStatus& work = record.estimate.work;
  last_progress_ = work.progress;
  last_in_step_ = work.step_group.has_value();
  last_straggles_ = last_in_step_ && !work.straggles.empty();
  if (last_straggles_) straggled_why_ = work.straggles;
}

std::optional<Fraction> Ledger::expected_performance() const {
  if (expected_time_ <= 0) return std::nullopt;
  return Fraction(expected_seconds_ / expected_time_);
}

Fraction Ledger::expected_coverage() const {
  return Fraction(total_ > Duration::zero() ? expected_time_ / seconds(total_) : 0);
}

std::optional<Fraction> Ledger::clock_ratio() const {
  if (total_ <= Duration::zero()) return std::nullopt;
  return Fraction(ratio_seconds_ / seconds(total_));
}

GpuFigures Ledger::figures() const {
  return {.time = energy_.elapsed(),
          .energy = energy_.total(),
          .integrated = energy_.integrated(),
          .from_counter = energy_.from_counter(),
          .mean_power = energy_.mean_power(),
          .mean_clock = measured_.mean(),
          .clocks = measured_.bins(),
          .asked_clocks = asked_,
          .released = released_,
          .capped = capped_,
          .thermal = thermal_,
          .heartbeats = heartbeats_,
          .launches = launches_,
          .launch_unsteadiness = launches_ > Duration::zero()
                                     ? std::optional(unsteadiness_seconds_ / seconds(launches_))
                                     : std::nullopt,
          .in_step = in_step_,
          .straggled = straggled_,
          .straggled_why = straggled_why_,
          .saving = saving_,
          .expected_performance = expected_performance(),
          .clock_ratio = clock_ratio(),
          .expected_coverage = expected_coverage(),
          .ticks = ticks_,
          .failed_reads = failed_reads_,
          .writes = writes_,
          .failed_writes = failed_writes_,
          .last_error = last_error_};
}

}  // namespace derate
