#include "govern/group/step_rule.h"

#include <algorithm>
#include <utility>

namespace derate {

const StepUnit* StepRule::unit_of(std::size_t at) const {
  for (const StepUnit& unit : units_)
    if (unit.has(at)) return &unit;
  return nullptr;
}

std::optional<std::size_t> StepRule::leader_of(std::size_t at) const {
  const StepUnit* const unit = unit_of(at);
  return unit == nullptr ? std::nullopt : std::optional(unit->leader);
}

void StepRule::gather(std::span<const GroupGpu> gpus) {
  std::vector<StepCandidate> candidates;
  for (std::size_t at = 0; at < gpus.size(); ++at) {
    const GroupGpu& gpu = gpus[at];
    const auto& group = gpu.work->step_group;
    if (!group || gpu.policy_key.empty()) continue;
    candidates.push_back(
        {at, *group, gpu.policy_key, gpu.envelope->clocks(), gpu.tick, gpu.dry_run});
  }
  if (!candidates.empty() || !units_.empty()) regroup(step_sets(candidates), gpus);
}

void StepRule::leave(std::size_t at, std::span<const GroupGpu> gpus) {
  if (unit_of(at) == nullptr) return;
  std::vector<StepSet> sets;
  for (const StepUnit& unit : units_) sets.push_back(unit.set);
  for (StepSet& set : sets) std::erase(set.gpus, at);
  std::erase_if(sets, [](const StepSet& set) { return set.gpus.size() < 2; });
  regroup(std::move(sets), gpus);
}

void StepRule::regroup(std::vector<StepSet> sets, std::span<const GroupGpu> gpus) {
  const StepChanges changes = derate::regroup(units_, std::move(sets));
  for (const auto& [from, to] : changes.swapped) std::swap(*gpus[from].seat, *gpus[to].seat);
  for (const std::size_t at : changes.begin_anew) gpus[at].seat->policy->begin_anew();
  for (StepUnit& unit : units_) {
    const auto& formed = changes.formed;
    if (std::find(formed.begin(), formed.end(), unit.leader) == formed.end()) continue;
    if (const auto clock = gpus[unit.leader].locked)
      unit.last = Decision::set(*clock, {"as the first GPU of those in step", {}});
  }
}

void StepRule::decide(std::span<GroupGpu> gpus) {
  for (StepUnit& unit : units_) {
    std::vector<StepReading> readings;
    for (const std::size_t at : unit.set.gpus)
      if (gpus[at].estimate != nullptr)
        readings.push_back({at, gpus[at].estimate, gpus[at].allowed});
    if (readings.empty()) continue;
    decide_in_step(unit, readings, *gpus[unit.leader].seat->policy);
    for (const StepReading& reading : readings) {
      gpus[reading.gpu].decision = unit.decision;
      gpus[reading.gpu].pace = unit.pace;
    }
  }
}

Saving StepRule::part_of(std::size_t at, const Saving& of_leader) const {
  return member_saving(*unit_of(at), at, of_leader);
}

}  // namespace derate
