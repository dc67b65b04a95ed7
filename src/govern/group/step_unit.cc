#include "govern/group/step_unit.h"

#include <algorithm>

namespace derate {
namespace {

bool alike(const StepCandidate& a, const StepCandidate& b) {
  return a.group == b.group && a.policy_key == b.policy_key && a.tick == b.tick &&
         a.dry_run == b.dry_run &&
         std::equal(a.clocks.begin(), a.clocks.end(), b.clocks.begin(), b.clocks.end());
}

bool contains(const StepSet& set, std::size_t gpu) {
  return std::binary_search(set.gpus.begin(), set.gpus.end(), gpu);
}

bool overlap(const StepSet& a, const StepSet& b) {
  return std::any_of(a.gpus.begin(), a.gpus.end(),
                     [&](std::size_t gpu) { return contains(b, gpu); });
}

// Where the unit goes on; the end: nowhere.
std::vector<StepSet>::iterator successor(const StepUnit& unit, std::vector<StepSet>& sets) {
  const auto of_group = [&](const StepSet& set) { return set.group == unit.set.group; };
  const auto found = std::find_if(sets.begin(), sets.end(), [&](const StepSet& set) {
    return of_group(set) && contains(set, unit.leader);
  });
  if (found != sets.end()) return found;
  return std::find_if(sets.begin(), sets.end(),
                      [&](const StepSet& set) { return of_group(set) && overlap(set, unit.set); });
}

void go_on_as(StepUnit& unit, StepSet set, StepChanges& changes) {
  if (!contains(set, unit.leader)) {
    const auto heir = std::find_if(set.gpus.begin(), set.gpus.end(),
                                   [&](std::size_t gpu) { return contains(unit.set, gpu); });
    changes.swapped.emplace_back(unit.leader, *heir);
    unit.leader = *heir;
  }
  for (const std::size_t gpu : unit.set.gpus)
    if (!contains(set, gpu)) changes.begin_anew.push_back(gpu);
  // Parts are of what was drawn together: a member that was not there has drawn less.
  if (unit.set.gpus != set.gpus) unit.drawn.clear(), unit.seen = {};
  unit.set = std::move(set);
  if (!contains(unit.set, unit.pace)) unit.pace = unit.leader;
}

StepUnit make_unit(StepSet set) {
  StepUnit out;
  out.leader = out.pace = set.gpus.front();
  out.set = std::move(set);
  return out;
}

// From one GPU's counter to the next one's it goes on as power has it.
void count_energy(StepUnit& unit, Estimate& estimate) {
  if (!estimate.energy) return;
  if (unit.counted && unit.counted->gpu != unit.pace) {
    const Duration between = estimate.time - unit.counted->time;
    const Joules expected = unit.counted->energy + estimate.power.value_or(Watts(0)) * between;
    unit.added = expected - *estimate.energy;
  }
  *estimate.energy += unit.added;
  unit.counted = {unit.pace, estimate.time, *estimate.energy};
}

// Each tick stands for the time since the one before, as the policies count it.
void count_drawn(StepUnit& unit, std::span<const StepReading> readings, const Estimate& told) {
  const Duration since = unit.at ? told.time - *unit.at : Duration{};
  unit.at = told.time;
  if (since > std::chrono::seconds(2) || !told.power) return;
  unit.seen += *told.power * since;
  for (const StepReading& reading : readings) {
    const auto known =
        std::find_if(unit.drawn.begin(), unit.drawn.end(),
                     [&](const DrawnInStep& each) { return each.gpu == reading.gpu; });
    DrawnInStep& drawn =
        known != unit.drawn.end() ? *known : unit.drawn.emplace_back(DrawnInStep{reading.gpu});
    drawn.energy += reading.estimate->power.value_or(*told.power) * since;
  }
}

// What was promised on any of the GPUs was promised of the work on all of them.
void take_promises(WorkStatus& work, std::span<const StepReading> readings) {
  std::vector<Promise> all;
  for (const StepReading& reading : readings)
    for (const Promise& one : reading.estimate->work.promises)
      if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  work.promises = std::move(all);
}

// Of the GPU that sets the pace. Empty: no reading is fresh.
std::optional<Estimate> estimate_of(StepUnit& unit, std::span<const StepReading> readings) {
  std::vector<PaceReading> fresh;
  for (const StepReading& each : readings)
    if (each.estimate->freshness == Freshness::fresh) fresh.push_back({each.gpu, each.estimate});
  if (fresh.empty()) return std::nullopt;
  const bool was_known = is_known(unit.means);
  add(unit.means, fresh);
  const bool is_told = was_known && std::any_of(fresh.begin(), fresh.end(), [&](const auto& each) {
                         return each.gpu == unit.pace && each.estimate->work.progress;
                       });
  unit.pace = slowest(unit.means, unit.pace, is_told);
  auto pace = std::find_if(fresh.begin(), fresh.end(),
                           [&](const PaceReading& each) { return each.gpu == unit.pace; });
  if (pace == fresh.end()) pace = fresh.begin();
  unit.pace = pace->gpu;
  Estimate out = *pace->estimate;
  take_promises(out.work, readings);
  count_energy(unit, out);
  return out;
}

const Envelope& narrowest(std::span<const StepReading> readings) {
  return *std::min_element(readings.begin(), readings.end(),
                           [](const StepReading& a, const StepReading& b) {
                             return a.envelope->highest() < b.envelope->highest();
                           })
              ->envelope;
}

}  // namespace

bool StepUnit::has(std::size_t gpu) const { return contains(set, gpu); }

std::vector<StepSet> step_sets(std::span<const StepCandidate> candidates) {
  std::vector<StepSet> out;
  std::vector<const StepCandidate*> firsts;
  for (const StepCandidate& each : candidates) {
    const auto at = std::find_if(firsts.begin(), firsts.end(),
                                 [&](const StepCandidate* first) { return alike(*first, each); });
    if (at == firsts.end()) {
      firsts.push_back(&each);
      out.push_back({each.group, {each.gpu}});
    } else {
      out[static_cast<std::size_t>(at - firsts.begin())].gpus.push_back(each.gpu);
    }
  }
  for (StepSet& set : out) std::sort(set.gpus.begin(), set.gpus.end());
  std::erase_if(out, [](const StepSet& set) { return set.gpus.size() < 2; });
  return out;
}

StepChanges regroup(std::vector<StepUnit>& units, std::vector<StepSet> sets) {
  StepChanges out;
  std::vector<StepUnit> kept;
  for (StepUnit& unit : units) {
    const auto at = successor(unit, sets);
    if (at == sets.end()) {
      out.begin_anew.insert(out.begin_anew.end(), unit.set.gpus.begin(), unit.set.gpus.end());
      continue;
    }
    go_on_as(unit, std::move(*at), out);
    sets.erase(at);
    kept.push_back(std::move(unit));
  }
  for (StepSet& set : sets) {
    kept.push_back(make_unit(std::move(set)));
    out.formed.push_back(kept.back().leader);
  }
  units = std::move(kept);
  return out;
}

const Decision& decide_in_step(StepUnit& unit, std::span<const StepReading> readings,
                               Policy& policy) {
  const std::size_t before = unit.pace;
  const bool was_known = is_known(unit.means);
  const auto estimate = estimate_of(unit, readings);
  if (!estimate) return unit.decision = Decision::hold({"no fresh reading", {}});
  count_drawn(unit, readings, *estimate);
  // A unit that wakes up gets the highest clock until the policy decides, as one GPU does.
  if (estimate->idle) unit.last.reset();
  // Readings of a GPU that waits are not to be compared with those of one that does not.
  if (was_known && unit.pace != before) policy.begin_anew();
  const Envelope& envelope = narrowest(readings);
  unit.decision = policy.decide(*estimate, envelope);
  if (unit.decision.kind != Decision::Kind::hold) {
    unit.last = unit.decision;
  } else if (unit.last) {
    const Decision held = std::exchange(unit.decision, *unit.last);
    unit.decision.reason = held.reason;
    unit.decision.expected_performance = held.expected_performance;
    // A bound that has come since holds for all members, whether the policy speaks or not.
    unit.decision.clock = std::min(unit.decision.clock, envelope.highest());
  }
  return unit.decision;
}

Saving member_saving(const StepUnit& unit, std::size_t gpu, const Saving& of_pace) {
  const auto drawn = std::find_if(unit.drawn.begin(), unit.drawn.end(),
                                  [&](const DrawnInStep& each) { return each.gpu == gpu; });
  if (unit.seen <= Joules(0) || drawn == unit.drawn.end()) return of_pace;
  const double share = drawn->energy / unit.seen;
  Saving out = of_pace;
  out.energy = out.energy * share;
  out.energy_at_highest = out.energy_at_highest * share;
  out.energy_sd = out.energy_sd * share;
  return out;
}

}  // namespace derate
