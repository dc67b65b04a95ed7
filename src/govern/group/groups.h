// The groups of a governor's GPUs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/record.h"
#include "govern/group/group_rule.h"

namespace derate {

class Groups {
 public:
  Groups();  // GPUs in step
  // All of their bounds hold; a rule that decides leaves a GPU alone that has a decision already.
  void add(std::unique_ptr<GroupRule> rule) { rules_.push_back(std::move(rule)); }

  // As in GroupRule, by all rules.
  void gather(std::span<const GroupGpu> gpus);
  void leave(std::size_t at, std::span<const GroupGpu> gpus);
  void bound(std::span<GroupGpu> gpus);
  void decide(std::span<GroupGpu> gpus);
  // The GPU whose policy decides for the one at `at`: itself, where no rule says otherwise.
  std::size_t leader_of(std::size_t at) const;
  // Puts savings into the records of one tick, which has records of all GPUs of a leader or of
  // none.
  void add_savings(std::span<Record> records, std::span<const GroupGpu> gpus,
                   TakeSaving when) const;

 private:
  const GroupRule* rule_of(std::size_t at) const;

  std::vector<std::unique_ptr<GroupRule>> rules_;
};

}  // namespace derate
