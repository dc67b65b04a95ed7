#include "service/records/lost_policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/gpu_group.h"

namespace derate {

std::optional<Event> LostPolicies::begin(const std::vector<CommandedPolicy>& before,
                                         std::span<const ManagedGpu> gpus) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> groups;  // by policy and who
  std::vector<int> all;
  for (const CommandedPolicy& each : before) {
    const auto gpu = std::find_if(gpus.begin(), gpus.end(),
                                  [&](const ManagedGpu& here) { return here.uuid() == each.gpu; });
    if (gpu == gpus.end() || gpu->policy_name() == each.policy) continue;
    groups[{each.policy, each.who}].push_back(gpu->id().index);
    all.push_back(gpu->id().index);
    if (!gpu->governed) lost_[each.gpu] = each.policy;
  }
  if (groups.empty()) return std::nullopt;
  std::string policies, sentence;
  for (const auto& [named, indices] : groups) {
    const auto& [policy, who] = named;
    policies += fmt::format("{}{}: {}", policies.empty() ? "" : "; ", policy, gpu_numbers(indices));
    sentence += fmt::format("{}{} on {}{}", sentence.empty() ? "" : ", ", policy,
                            gpu_group_name(indices), who.empty() ? "" : " (" + who + ")");
  }
  return Event{.kind = EventKind::policies_lost,
               .message = "policies set by command ended when derated restarted: " + sentence,
               .fields = {{"gpus", gpu_numbers(all)}, {"policies", policies}}};
}

std::optional<Event> LostPolicies::take(const ManagedGpu& gpu) {
  const auto at = lost_.find(gpu.uuid());
  if (at == lost_.end() || !gpu.assigned) return std::nullopt;
  const RequestOrigin origin = gpu.assigned->origin;
  if (origin != origins::command && origin != origins::configuration) return std::nullopt;
  if (gpu.governed) {
    lost_.erase(at);
    return std::nullopt;
  }
  if (origin != origins::command || gpu.assigned->governs()) return std::nullopt;
  const std::string policy = std::exchange(at->second, {});
  lost_.erase(at);
  return Event{
      .kind = EventKind::released,
      .gpu = gpu.uuid(),
      .gpu_index = gpu.id().index,
      .message = fmt::format("GPU {} is only observed, and its policy {} of before is not "
                             "missed",
                             gpu.id().index, policy),
      .fields = {{"from", policy}, {"source", to_string(origin)}, {"who", gpu.assigned->who}}};
}

std::string LostPolicies::of(const std::string& uuid) const {
  const auto at = lost_.find(uuid);
  return at == lost_.end() ? "" : at->second;
}

}  // namespace derate
