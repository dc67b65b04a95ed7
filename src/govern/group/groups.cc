#include "govern/group/groups.h"

#include "govern/group/step_rule.h"

namespace derate {

Groups::Groups() { add(std::make_unique<StepRule>()); }

void Groups::gather(std::span<const GroupGpu> gpus) {
  for (const auto& rule : rules_) rule->gather(gpus);
}

void Groups::leave(std::size_t at, std::span<const GroupGpu> gpus) {
  for (const auto& rule : rules_) rule->leave(at, gpus);
}

void Groups::bound(std::span<GroupGpu> gpus) {
  for (const auto& rule : rules_) rule->bound(gpus);
}

void Groups::decide(std::span<GroupGpu> gpus) {
  for (const auto& rule : rules_) rule->decide(gpus);
}

const GroupRule* Groups::rule_of(std::size_t at) const {
  for (const auto& rule : rules_)
    if (rule->leader_of(at)) return rule.get();
  return nullptr;
}

std::size_t Groups::leader_of(std::size_t at) const {
  const GroupRule* const rule = rule_of(at);
  return rule == nullptr ? at : *rule->leader_of(at);
}

// Taken at the leader's own record alone: at a tick without one nobody would get it.
void Groups::add_savings(std::span<Record> records, std::span<const GroupGpu> gpus,
                         TakeSaving when) const {
  std::vector<std::optional<Saving>> of_leaders(gpus.size());
  for (const Record& record : records) {
    const auto at = static_cast<std::size_t>(record.gpu);
    if (leader_of(at) == at) of_leaders[at] = take_saving(*gpus[at].seat, record.time, when);
  }
  for (Record& record : records) {
    const auto at = static_cast<std::size_t>(record.gpu);
    const GroupRule* const rule = rule_of(at);
    const auto& whole = of_leaders[leader_of(at)];
    if (whole) record.saving = rule == nullptr ? *whole : rule->part_of(at, *whole);
  }
}

}  // namespace derate
