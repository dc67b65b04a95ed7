#include "govern/ledger.h"

#include <algorithm>

namespace derate {

void Ledger::add_time(Duration held) {
  const double s = seconds(held);
  total_ += held;
  if (last_.locked)
    sums_.asked_clocks[*last_.locked] += held;
  else
    sums_.released += held;
  // Without a lock the GPU's own control takes the top clock whenever there is work.
  ratio_seconds_ += s * std::min(1.0, last_.locked.value_or(highest_) / highest_);
  if (last_.expected) {
    expected_seconds_ += s * last_.expected->value();
    expected_time_ += s;
  }
  const ProgressSource source = source_of(last_.progress);
  if (source == ProgressSource::heartbeats) sums_.heartbeats += held;
  if (source == ProgressSource::launches) {
    sums_.launches += held;
    unsteadiness_seconds_ += s * last_.progress->rate_uncertainty;
  }
  if (last_.in_step) sums_.in_step += held;
  if (last_.without_work) sums_.without_work += held;
  if (last_.straggles) sums_.straggled += held;
  if ((last_.throttle & throttle::kSwPowerCap) != 0) sums_.capped += held;
  if ((last_.throttle & throttle::kThermal) != 0) sums_.thermal += held;
}

void Ledger::add(const Record& record) {
  if (last_.time) add_time(record.time - *last_.time);
  ++sums_.ticks;
  if (record.sample) {
    energy_.add(*record.sample);
    measured_.add(*record.sample);
    last_.throttle = record.sample->throttle_reasons.value_or(0);
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
  last_.time = record.time;
  last_.locked = record.actuation.locked;
  last_.expected = record.decision.expected_performance;
  const WorkStatus& work = record.estimate.work;
  beats_.add(record.estimate);
  last_.progress = work.progress;
  last_.without_work = record.estimate.gpu_utilisation == Fraction(0);
  last_.in_step = work.step_group.has_value();
  last_.straggles = last_.in_step && !work.straggles.empty();
  if (last_.straggles) sums_.straggled_why = work.straggles;
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
