// The rule of GPUs in step (govern/group/step_unit.h): one policy decides for all of a unit, and
// they have their ticks together.
#pragma once

#include <vector>

#include "govern/group/group_rule.h"
#include "govern/group/step_unit.h"

namespace derate {

class StepRule final : public GroupRule {
 public:
  // GPUs are one unit where their work goes in step (WorkStatus::step_group) and they have the same
  // policy, envelope and tick.
  void gather(std::span<const GroupGpu> gpus) override;
  void leave(std::size_t at, std::span<const GroupGpu> gpus) override;
  std::optional<std::size_t> leader_of(std::size_t at) const override;
  void decide(std::span<GroupGpu> gpus) override;
  Saving part_of(std::size_t at, const Saving& of_leader) const override;

 private:
  const StepUnit* unit_of(std::size_t at) const;
  void regroup(std::vector<StepSet> sets, std::span<const GroupGpu> gpus);

  std::vector<StepUnit> units_;
};

}  // namespace derate
