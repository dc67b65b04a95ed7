#include "govern/fleet/assignments.h"

#include <algorithm>

namespace derate {

const char* to_string(AssignmentSource source) {
  constexpr const char* kNames[] = {"configuration", "command", "unconfirmed", "run", "tuning"};
  return kNames[static_cast<int>(source)];
}

void Assignments::put(const std::string& uuid, Assignment assignment) {
  assignments_[uuid].insert_or_assign(assignment.source, std::move(assignment));
}

void Assignments::withdraw(const std::string& uuid, AssignmentSource source) {
  if (const auto at = assignments_.find(uuid); at != assignments_.end()) at->second.erase(source);
}

void Assignments::withdraw(AssignmentSource source) {
  for (auto& [uuid, all] : assignments_) all.erase(source);
}

const Assignment* Assignments::find(const std::string& uuid, AssignmentSource source) const {
  const auto gpu = assignments_.find(uuid);
  if (gpu == assignments_.end()) return nullptr;
  const auto at = gpu->second.find(source);
  return at == gpu->second.end() ? nullptr : &at->second;
}

const Assignment* Assignments::last_of(const std::string& uuid, Instant now,
                                       std::optional<AssignmentSource> last) const {
  const auto gpu = assignments_.find(uuid);
  if (gpu == assignments_.end()) return nullptr;
  const Assignment* out = nullptr;
  for (const auto& [source, assignment] : gpu->second)
    if ((!last || source <= *last) && (!assignment.until || now < *assignment.until))
      out = &assignment;
  return out;
}

const Assignment* Assignments::winner(const std::string& uuid, Instant now) const {
  return last_of(uuid, now, std::nullopt);
}

const Assignment* Assignments::of_operators(const std::string& uuid, Instant now) const {
  return last_of(uuid, now, AssignmentSource::unconfirmed);
}

std::vector<std::string> Assignments::gpus_of(AssignmentSource source,
                                              const std::string& who) const {
  std::vector<std::string> out;
  for (const auto& [uuid, all] : assignments_)
    if (const auto at = all.find(source); at != all.end() && at->second.who == who)
      out.push_back(uuid);
  return out;
}

std::vector<std::shared_ptr<TunedRun>> Assignments::tuned_runs() const {
  std::vector<std::shared_ptr<TunedRun>> out;
  for (const auto& [uuid, all] : assignments_)
    for (const auto& [source, assignment] : all)
      if (assignment.tuned && std::find(out.begin(), out.end(), assignment.tuned->run) == out.end())
        out.push_back(assignment.tuned->run);
  return out;
}

}  // namespace derate
