#include "govern/ledger.h"

#include <algorithm>

namespace derate {

void Ledger::add_time(Duration held) {
  const double s = seconds(held);
  total_ += held;
  if (last_locked_)
    sums_.asked_clocks[*last_locked_] += held;
  else
    sums_.released += held;
  // Without a lock the GPU's own control takes the top clock whenever there is work.
  ratio_seconds_ += s * std::min(1.0, last_locked_.value_or(highest_) / highest_);
  if (last_expected_) {
    expected_seconds_ += s * last_expected_->value();
    expected_time_ += s;
  }
  const ProgressSource source = source_of(last_progress_);
  if (source == ProgressSource::heartbeats) sums_.heartbeats += held;
  if (source == ProgressSource::launches) {
    sums_.launches += held;
    unsteadiness_seconds_ += s * last_progress_->rate_uncertainty;
  }
  if (last_in_step_) sums_.in_step += held;
  if (last_straggles_) sums_.straggled += held;
  if ((last_throttle_ & throttle::kSwPowerCap) != 0) sums_.capped += held;
  if ((last_throttle_ & throttle::kThermal) != 0) sums_.thermal += held;
}

void Ledger::add(const Record& record) {
  if (last_time_) add_time(record.time - *last_time_);
  ++sums_.ticks;
  if (record.sample) {
    energy_.add(*record.sample);
    measured_.add(*record.sample);
    last_throttle_ = record.sample->throttle_reasons.value_or(0);
  } else {
    ++sums_.failed_reads;
    sums_.last_error = record.sample_error;
  }
  switch (record.actuation.outcome) {
    case Actuation::Outcome::nothing:
      break;
    case Actuation::Outcome::shadow:
    case Actuation::Outcome::written:
    case Actuation::Outcome::released:
      ++sums_.writes;
      break;
    case Actuation::Outcome::failed:
      ++sums_.failed_writes;
      sums_.last_error = record.actuation.error;
      break;
    case Actuation::Outcome::waiting:
    case Actuation::Outcome::yielded:
      sums_.last_error = record.actuation.error;
      break;
  }
  if (record.saving) {
    if (!sums_.saving) sums_.saving.emplace();
    *sums_.saving += *record.saving;
  }
  last_time_ = record.time;
  last_locked_ = record.actuation.locked;
  last_expected_ = record.decision.expected_performance;
  const WorkStatus& work = record.estimate.work;
  beats_.add(record.estimate);
  last_progress_ = work.progress;
  last_in_step_ = work.step_group.has_value();
  last_straggles_ = last_in_step_ && !work.straggles.empty();
  if (last_straggles_) sums_.straggled_why = work.straggles;
}

GpuFigures Ledger::figures() const {
  GpuFigures out = sums_;
  out.time = energy_.elapsed();
  out.energy = energy_.total();
  out.integrated = energy_.integrated();
  out.from_counter = energy_.from_counter();
  out.counter_still = energy_.counter_still();
  out.check_ratio = energy_.check_ratio();
  out.mean_power = energy_.mean_power();
  out.mean_clock = measured_.mean();
  out.clocks = measured_.bins();
  if (out.launches > Duration::zero())
    out.launch_unsteadiness = unsteadiness_seconds_ / seconds(out.launches);
  out.heartbeats_moved = beats_.moved();
  if (expected_time_ > 0) out.expected_performance = Fraction(expected_seconds_ / expected_time_);
  if (total_ > Duration::zero()) {
    out.expected_coverage = Fraction(expected_time_ / seconds(total_));
    out.clock_ratio = Fraction(ratio_seconds_ / seconds(total_));
  }
  return out;
}

}  // namespace derate
