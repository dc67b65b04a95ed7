#include "govern/fleet/assignments.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace derate {

// A tuning has its GPUs whole: whoever else wants one ends it first.
Verdict decide(const Assignment& request, const Assignment* first) {
  if (first == nullptr) return Verdict::governs;
  if (first->tuned) return Verdict::refused;
  if (!(request.origin < first->origin)) return Verdict::governs;
  return request.origin->behind == OriginRow::Behind::waits ? Verdict::waits : Verdict::refused;
}

Result<void> beyond_operators(const PolicyAssignment& wanted, const Assignment* by) {
  if (by == nullptr) return {};
  const auto refused = [](std::string why) { return Error{Errc::no_permission, std::move(why)}; };
  if (!by->policy) return refused("an operator has released it (`derate policy set` ends it)");
  if (by->policy->dry_run && !wanted.dry_run)
    return refused("an operator has it governed without a write (dry run)");
  const double allowed = most_loss(by->policy->policy), loss = most_loss(wanted.policy);
  if (allowed >= 1)
    return refused(fmt::format("it is governed by {}, which promises nothing that a run could keep",
                               by->policy->policy.info->name));
  if (loss > allowed + kLossRounding)
    return refused(fmt::format(
        "{} may lose {:.4g} %, and it is governed by {}, which may lose {:.4g} %: allowed is less",
        wanted.policy.info->name, 100 * loss, by->policy->policy.info->name, 100 * allowed));
  return {};
}

void Assignments::put(const std::string& uuid, Assignment assignment) {
  assignments_[uuid].insert_or_assign(assignment.origin, std::move(assignment));
}

void Assignments::withdraw(const std::string& uuid, RequestOrigin origin) {
  if (const auto at = assignments_.find(uuid); at != assignments_.end()) at->second.erase(origin);
}

void Assignments::withdraw(RequestOrigin origin) {
  for (auto& [uuid, all] : assignments_) all.erase(origin);
}

const Assignment* Assignments::find(const std::string& uuid, RequestOrigin origin) const {
  const auto gpu = assignments_.find(uuid);
  if (gpu == assignments_.end()) return nullptr;
  const auto at = gpu->second.find(origin);
  return at == gpu->second.end() ? nullptr : &at->second;
}

template <class Wanted>
const Assignment* Assignments::highest(const std::string& uuid, Instant now, Wanted wanted) const {
  const auto gpu = assignments_.find(uuid);
  if (gpu == assignments_.end()) return nullptr;
  const Assignment* out = nullptr;
  for (const auto& [origin, assignment] : gpu->second)
    if (wanted(origin) && (!assignment.until || now < *assignment.until)) out = &assignment;
  return out;
}

const Assignment* Assignments::winner(const std::string& uuid, Instant now) const {
  return highest(uuid, now, [](RequestOrigin) { return true; });
}

const Assignment* Assignments::of_operators(const std::string& uuid, Instant now) const {
  return highest(uuid, now,
                 [](RequestOrigin origin) { return origin->asker == OriginRow::Asker::operators; });
}

std::vector<std::string> Assignments::gpus_of(RequestOrigin origin, const std::string& who) const {
  std::vector<std::string> out;
  for (const auto& [uuid, all] : assignments_)
    if (const auto at = all.find(origin); at != all.end() && at->second.who == who)
      out.push_back(uuid);
  return out;
}

std::vector<std::shared_ptr<TunedRun>> Assignments::tuned_runs() const {
  std::vector<std::shared_ptr<TunedRun>> out;
  for (const auto& [uuid, all] : assignments_)
    for (const auto& [origin, assignment] : all)
      if (assignment.tuned && std::find(out.begin(), out.end(), assignment.tuned->run) == out.end())
        out.push_back(assignment.tuned->run);
  return out;
}

}  // namespace derate
