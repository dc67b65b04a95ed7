#include "service/scheduler/pod_wishes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "govern/fleet/policy_choice.h"
#include "policy/policy_options.h"

namespace derate {
namespace {

std::string who_is(const PodRequest& pod) {
  return fmt::format("pod {}/{}", pod.name.name_space, pod.name.pod);
}

// -1: nothing is written.
double loss_of(const std::optional<PolicyAssignment>& policy) {
  return policy ? most_loss(policy->policy) : -1;
}
double loss_of(const ManagedGpu& gpu) {
  return gpu.policy() == nullptr ? -1 : most_loss(gpu.policy()->policy);
}

constexpr const char* kEnded = "no pod on it requests that any more";
constexpr const char* kRefused = "requests of the pods on it count for nothing now";

}  // namespace

void PodWishes::rules(RequestRules rules, const KubernetesSettings& settings) {
  rules_ = std::move(rules);
  namespaces_ = split_names(settings.namespaces);
  failed_.clear();
}

void PodWishes::step(const InstanceGpus& instances) {
  const PodRequests pods = options_.pods ? options_.pods() : nullptr;
  if ((!pods || pods->empty()) && given_.empty()) return logged_.clear();
  static const std::vector<PodRequest> kNone;
  named_.clear();
  const std::vector<GpuId> ids = fleet_.ids();
  const PodMatch match = match_pods(pods ? *pods : kNone, ids, instances);
  for (const auto& [uid, why] : match.unproven) log_once(uid + " device", why);
  for (std::size_t at = 0; at < fleet_.gpus().size(); ++at) {
    const auto on_gpu = match.on_gpu.find(fleet_.gpus()[at].uuid());
    step(at, on_gpu == match.on_gpu.end() ? std::vector<const PodRequest*>() : on_gpu->second);
  }
  std::set<std::string> lost;  // they are not here any more
  for (const auto& [uuid, decision] : given_)
    if (fleet_.find(uuid) == nullptr) lost.insert(uuid);
  for (const std::string& uuid : lost) give_back(uuid, "it is not here any more");
  std::erase_if(logged_, [&](const auto& each) { return !named_.contains(each.first); });
}

void PodWishes::step(std::size_t at, const std::vector<const PodRequest*>& pods) {
  const ManagedGpu& gpu = fleet_.gpus()[at];
  const std::string uuid = gpu.uuid();
  const auto wanted = decide(gpu, pods);
  if (!wanted) return give_back(uuid, pods.empty() ? kEnded : kRefused);
  if (is_in_force(gpu, *wanted)) return;
  const auto failed = failed_.find(uuid);
  if (failed != failed_.end() && failed->second.of == *wanted &&
      clock_.now() < failed->second.again) {
    if (logged_.contains(uuid)) named_.insert(uuid);
    return;
  }
  if (may_change(gpu, *wanted)) give(at, *wanted);
}

// Without it the policy in force stays, which loses no more than any pod allows.
bool PodWishes::may_change(const ManagedGpu& gpu, const Decision& decision) {
  std::deque<Instant>& made = changes_[gpu.uuid()];
  const Instant now = clock_.now();
  while (!made.empty() && now - made.front() >= kChangeCounts) made.pop_front();
  if (made.size() >= kMostChanges && loss_of(decision.policy) >= loss_of(gpu)) {
    log_once(gpu.uuid(),
             fmt::format("{}: GPU {} waits for its policy: annotations of the pods on it have "
                         "changed {} times within an hour",
                         decision.who, gpu.id().index, made.size()));
    return false;
  }
  return true;
}

// The strictest of those that operators allow: nothing written, then the smallest loss, then the
// first by name.
std::optional<PodWishes::Decision> PodWishes::decide(const ManagedGpu& gpu,
                                                     const std::vector<const PodRequest*>& pods) {
  std::optional<Decision> out;
  const auto loss = [](const Decision& decision) { return loss_of(decision.policy); };
  for (const PodRequest* const pod : pods) {
    auto decision = decision_of(*pod);
    if (!decision) continue;
    if (const auto allowed = check_operators(gpu, *decision); !allowed.ok()) {
      log_once(fmt::format("{} {}", pod->uid, gpu.uuid()),
               fmt::format("{}: GPU {} is not governed for it: {}", decision->who, gpu.id().index,
                           allowed.error().message));
      continue;
    }
    const bool stricter = !out || loss(*decision) < loss(*out) ||
                          (loss(*decision) == loss(*out) && decision->who < out->who);
    if (stricter) out = std::move(decision);
  }
  return out;
}

// Empty: the pod's annotations count for nothing, which is logged.
std::optional<PodWishes::Decision> PodWishes::decision_of(const PodRequest& pod) {
  const auto ignored = [&](const std::string& why) {
    log_once(pod.uid, fmt::format("{}: its annotations count for nothing: {}", who_is(pod), why));
    return std::nullopt;
  };
  if (!namespaces_.empty() && !namespaces_.contains(pod.name.name_space))
    return ignored(fmt::format("[kubernetes] namespaces does not name '{}'", pod.name.name_space));
  if (!pod.wish.govern) return Decision{.who = who_is(pod), .policy = std::nullopt};
  PolicyOptions options{.policy = pod.wish.policy, .assignments = {}, .config = {}};
  if (pod.wish.delta) options.assignments.push_back(fmt::format("delta={}", *pod.wish.delta));
  const Settings& settings = fleet_.settings();
  auto policy = choose_policy(options, settings);
  if (!policy.ok()) return ignored(policy.error().message);
  const PolicyAssignment wanted{*std::move(policy), settings.dry_run};
  if (const auto allowed = check_wanted(rules_, who_is(pod), wanted); !allowed.ok())
    return ignored(allowed.error().message);
  return Decision{.who = who_is(pod), .policy = wanted};
}

// Observing loses nothing, but it undoes what operators want for the GPU.
Result<void> PodWishes::check_operators(const ManagedGpu& gpu, const Decision& decision) const {
  if (gpu.tuned()) return Error{Errc::busy, fmt::format("it is tuned for '{}'", gpu.assigned->who)};
  const Assignment* const by = fleet_.assignments().of_operators(gpu.uuid(), clock_.now());
  if (decision.policy) {
    const bool by_pod = gpu.assigned && gpu.assigned->origin == origins::pod;
    if (by == nullptr && gpu.trouble && !by_pod)
      return Error{Errc::busy, "the configuration is not applied there: " + gpu.trouble->message};
    return beyond_operators(*decision.policy, by);
  }
  if (by != nullptr && by->origin != origins::configuration)
    return Error{Errc::busy, fmt::format("{} has assigned it", by->who)};
  return {};
}

bool PodWishes::is_in_force(const ManagedGpu& gpu, const Decision& decision) const {
  const Assignment* const ours = fleet_.assignments().find(gpu.uuid(), origins::pod);
  return ours != nullptr && given_.contains(gpu.uuid()) && ours->who == decision.who &&
         ours->policy == policy_for(gpu, decision);
}

// With the parameters that operators have set for the same policy.
std::optional<PolicyAssignment> PodWishes::policy_for(const ManagedGpu& gpu,
                                                      const Decision& decision) const {
  if (!decision.policy) return std::nullopt;
  return with_operators_parameters(*decision.policy,
                                   fleet_.assignments().of_operators(gpu.uuid(), clock_.now()));
}

void PodWishes::give(std::size_t at, const Decision& decision) {
  const std::string uuid = fleet_.gpus()[at].uuid();
  Assignment wish{.origin = origins::pod, .who = decision.who};
  wish.policy = policy_for(fleet_.gpus()[at], decision);
  const auto done = fleet_.assign(at, std::move(wish));
  if (!done.ok()) return fail(fleet_.gpus()[at], decision, done.error().message);
  failed_.erase(uuid);
  given_[uuid] = decision;
  std::deque<Instant>& made = changes_[uuid];
  made.push_back(clock_.now());
  if (made.size() > kMostChanges) made.pop_front();
  options_.log.info(fmt::format("{}: {}", decision.who, *done), {{"gpu", uuid}});
}

void PodWishes::fail(const ManagedGpu& gpu, const Decision& decision, const std::string& why) {
  const std::string& uuid = gpu.uuid();
  given_.erase(uuid);
  Failure& failure = failed_[uuid];
  const bool same = failure.of == decision;
  failure.wait = same ? std::min(kLongestAgain, 2 * failure.wait) : kAgainAfter;
  failure.of = decision;
  failure.again = clock_.now() + failure.wait;
  withdraw(uuid, "it failed");
  log_once(uuid,
           fmt::format("{}: GPU {} is not governed for it: {}", decision.who, gpu.id().index, why));
}

// The fleet keeps an earlier pod's request where a later one's failed.
void PodWishes::withdraw(const std::string& uuid, const char* why) {
  const Assignment* const ours = fleet_.assignments().find(uuid, origins::pod);
  if (ours == nullptr) return;
  const std::string who = ours->who;
  const auto restored = fleet_.end_request(uuid, origins::pod, who, why);
  if (!restored.ok())
    options_.log.error("not restored: " + restored.error().message, {{"gpu", uuid}});
}

void PodWishes::give_back(const std::string& uuid, const char* why) {
  const auto given = given_.find(uuid);
  if (given == given_.end()) return;
  const std::string who = given->second.who;
  given_.erase(given);
  failed_.erase(uuid);
  withdraw(uuid, why);
  options_.log.info(fmt::format("{}: GPU {} is given back: {}", who, uuid, why), {{"gpu", uuid}});
}

// Again only where the text changes, or was not true meanwhile.
void PodWishes::log_once(const std::string& key, const std::string& text) {
  named_.insert(key);
  std::string& logged = logged_[key];
  if (std::exchange(logged, text) != text) options_.log.warning(text);
}

}  // namespace derate
