#include "service/records/gpu_totals.h"

#include <algorithm>

#include "policy/registry/registry.h"

namespace derate {
namespace {

bool is_below(PromiseState state) {
  return state == PromiseState::below || state == PromiseState::broken;
}

// Each is the most that it has been.
void raise_sums(SavingSums& most, const SavingSums& now) {
  most.energy_mj = std::max(most.energy_mj, now.energy_mj);
  most.at_highest_mj = std::max(most.at_highest_mj, now.at_highest_mj);
  most.sd_mj = std::max(most.sd_mj, now.sd_mj);
}

}  // namespace

void GpuTotalsMeter::set_max_gap(Duration max_gap) {
  max_gap_ = max_gap;
  odometer_.set_max_gap(max_gap);
}

void GpuTotalsMeter::add(const Record& record, const std::optional<Record>& before,
                         const GoverningNow& now) {
  if (!begun_) begun_ = record.time;
  // What held before it was closed did not hold until it was opened again.
  if (!before) held_.reset();
  hold_until(record.time);
  totals_.due_within = std::max(max_gap_, 2 * now.tick);
  const bool was_broken = held_ && held_->promise == PromiseState::broken;
  held_ = {.since = record.time,
           .governed = now.governed,
           .probing = now.governed && record.decision.probing,
           .idle = record.estimate.idle,
           .promise = now.promise,
           .throttle = record.sample ? record.sample->throttle_reasons.value_or(0) : 0};
  totals_.violations += now.promise == PromiseState::broken && !was_broken;
  take_reading(record);
  take_writes(record, before, now.governed);
  if (record.saving && !now.dry_run) {
    if (!totals_.saving) totals_.saving.emplace();
    *totals_.saving += *record.saving;
    raise_sums(totals_.most_saving, saving_sums(*totals_.saving));
  }
}

void GpuTotalsMeter::hold_until(Instant time) {
  if (!held_ || time < held_->since || time - held_->since > totals_.due_within) return;
  const Duration held = time - held_->since;
  (held_->governed ? totals_.governed : totals_.observed) += held;
  if (held_->probing) totals_.probing += held;
  if (held_->idle) totals_.idle += held;
  if (is_below(held_->promise)) totals_.below_promise += held;
  if (held_->throttle == 0) return;
  for (std::size_t i = 0; i < kThrottleReasons; ++i)
    if ((held_->throttle & throttle_reasons()[i].bit) != 0) totals_.throttled[i] += held;
}

void GpuTotalsMeter::take_reading(const Record& record) {
  ++totals_.reads;
  if (!record.sample) {
    ++totals_.failed_reads;
    // One that is opened anew has not been silent for long yet, and is stuck all the same.
    const bool stuck = record.sample_failure == Errc::gpu_stuck ||
                       (totals_.stuck && record.sample_failure == Errc::busy);
    totals_.times_stuck += stuck && !totals_.stuck;
    totals_.stuck = stuck;
    const bool lost = record.time - totals_.sampled.value_or(*begun_) >= kLostAfter;
    totals_.times_lost += lost && !totals_.lost;
    totals_.lost = lost;
    return;
  }
  const Sample& sample = *record.sample;
  totals_.stuck = totals_.lost = false;
  totals_.sampled = sample.time;
  if (!(sample.activity == Activity{})) {
    totals_.activity = sample.activity;
    totals_.activity_read = read_of(sample, Field::activity).taken;
  }
  if (sample.tenants) {
    totals_.processes = sample.tenants;
    totals_.processes_read = sample.time;
  }
  take_energy(sample);
}

// Until the counter is read again power stands in for it, and may have been too high: the total
// stays where it is then, until the counter has come there.
void GpuTotalsMeter::take_energy(const Sample& sample) {
  odometer_.add(sample);
  if (!odometer_.has_seen_any()) return;
  const EnergyTotals now = odometer_.totals(odometer_.mark(sample.time));
  totals_.energy = std::max(totals_.energy.value_or(Joules()), now.energy);
  totals_.uncovered = now.uncovered;
}

void GpuTotalsMeter::take_writes(const Record& record, const std::optional<Record>& before,
                                 bool governed) {
  using Outcome = Actuation::Outcome;
  const Outcome outcome = record.actuation.outcome;
  totals_.writes += outcome == Outcome::written || outcome == Outcome::released;
  // That a GPU cannot be set which does not answer is known without it.
  totals_.failed_writes += outcome == Outcome::failed && record.sample;
  totals_.yields +=
      outcome == Outcome::yielded && !(before && before->actuation.outcome == Outcome::yielded);
  // Another actuator begins to count anew.
  const int drifts = record.actuation.drifts, known = before ? before->actuation.drifts : 0;
  totals_.drifts += static_cast<std::uint64_t>(drifts >= known ? drifts - known : drifts);
  const Clamped::Rule rule = record.clamped.rule;
  if (governed && rule != Clamped::Rule::none && !(before && before->clamped.rule == rule))
    ++totals_.refusals[static_cast<std::size_t>(rule)];
}

void GpuTotalsTable::set_max_gap(Duration max_gap) {
  max_gap_ = max_gap;
  for (auto& [uuid, row] : rows_) row.meter.set_max_gap(max_gap);
}

void GpuTotalsTable::take(const GpuRecord& each) {
  const GpuId& id = each.gpu.id();
  auto at = rows_.find(id.uuid);
  if (at == rows_.end()) at = rows_.emplace(id.uuid, Row{id, GpuTotalsMeter(max_gap_)}).first;
  at->second.id = id;  // its number may be another one now
  GoverningNow now{.governed = each.gpu.governed, .promise = each.gpu.promise.now().state};
  if (const PolicyAssignment* by = each.gpu.policy()) {
    now.dry_run = by->dry_run;
    now.tick = policy_tick(by->policy.params);
  }
  at->second.meter.add(each.record, each.before, now);
}

std::optional<GpuTotals> GpuTotalsTable::of(const std::string& uuid) const {
  const auto at = rows_.find(uuid);
  return at == rows_.end() ? std::nullopt : std::optional(at->second.meter.totals());
}

}  // namespace derate
