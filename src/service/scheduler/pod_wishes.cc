#include "service/scheduler/pod_wishes.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "govern/fleet/policy_choice.h"
#include "policy/policy_options.h"

namespace derate {
namespace {

std::string who_is(const PodRequest& pod) {
  return fmt::format("pod {}/{}", pod.name.name_space, pod.name.pod);
}

constexpr const char* kEnded = "no pod on it requests that any more";

}  // namespace

void PodWishes::rules(RequestRules rules, const KubernetesSettings& settings) {
  rules_ = std::move(rules);
  namespaces_ = split_names(settings.namespaces);
  failed_.clear();
}

void PodWishes::step(const InstanceGpus& instances) {
  const PodRequests pods = options_.pods ? options_.pods() : nullptr;
  if ((!pods || pods->empty()) && given_.empty()) return;
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
  auto wanted = decide(pods);
  if (wanted)
    if (const auto allowed = check_operators(gpu, *wanted); !allowed.ok()) {
      log_once(uuid, fmt::format("{}: GPU {} is left as it is: {}", wanted->who, gpu.id().index,
                                 allowed.error().message));
      wanted.reset();
    }
  if (!wanted) return give_back(uuid, kEnded);
  if (is_in_force(gpu, *wanted)) return;
  const auto failed = failed_.find(uuid);
  if (failed != failed_.end() && failed->second.of == *wanted &&
      clock_.now() < failed->second.again) {
    if (logged_.contains(uuid)) named_.insert(uuid);
    return;
  }
  give(at, *wanted);
}

// The strictest: nothing written, then the smallest loss, then the first by name.
std::optional<PodWishes::Decision> PodWishes::decide(const std::vector<const PodRequest*>& pods) {
  std::optional<Decision> out;
  const auto loss = [](const Decision& decision) {
    return decision.policy ? most_loss(decision.policy->policy) : -1.0;
  };
  for (const PodRequest* const pod : pods) {
    auto decision = decision_of(*pod);
    if (!decision) continue;
    const bool stricter = !out || loss(*decision) < loss(*out) ||
                          (loss(*decision) == loss(*out) && decision->who < out->who);
    if (stricter) out = std::move(decision);
  }
  return out;
}

// Empty: the pod has no say, which is logged.
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
    if (by == nullptr && gpu.trouble)
      return Error{Errc::busy, "the configuration is not applied there: " + gpu.trouble->message};
    return beyond_operators(*decision.policy, by);
  }
  if (by != nullptr && by->origin != origins::configuration)
    return Error{Errc::busy, fmt::format("{} has assigned it", by->who)};
  return {};
}

bool PodWishes::is_in_force(const ManagedGpu& gpu, const Decision& decision) const {
  const Assignment* const ours = fleet_.assignments().find(gpu.uuid(), origins::pod);
  const auto given = given_.find(gpu.uuid());
  return ours != nullptr && given != given_.end() && given->second == decision;
}

void PodWishes::give(std::size_t at, const Decision& decision) {
  const std::string uuid = fleet_.gpus()[at].uuid();
  const Assignment* const by = fleet_.assignments().of_operators(uuid, clock_.now());
  Assignment wish{.origin = origins::pod, .who = decision.who};
  if (decision.policy) wish.policy = with_operators_parameters(*decision.policy, by);
  const int index = fleet_.gpus()[at].id().index;
  const auto done = fleet_.assign(at, std::move(wish));
  if (!done.ok()) {
    given_.erase(uuid);
    failed_[uuid] = {decision, clock_.now() + kAgainAfter};
    (void)fleet_.end_request(uuid, origins::pod, decision.who, "it failed").ok();
    return log_once(uuid, fmt::format("{}: GPU {} is not governed for it: {}", decision.who, index,
                                      done.error().message));
  }
  failed_.erase(uuid);
  given_[uuid] = decision;
  options_.log.info(fmt::format("{}: GPU {} is {}", decision.who, index,
                                decision.policy ? fmt::format("governed by {}",
                                                              decision.policy->policy.info->name)
                                                : "only observed"),
                    {{"gpu", uuid}});
}

void PodWishes::give_back(const std::string& uuid, const char* why) {
  const auto given = given_.find(uuid);
  if (given == given_.end()) return;
  const std::string who = given->second.who;
  given_.erase(given);
  failed_.erase(uuid);
  const auto restored = fleet_.end_request(uuid, origins::pod, who, why);
  if (!restored.ok())
    options_.log.error("not restored: " + restored.error().message, {{"gpu", uuid}});
  options_.log.info(fmt::format("{}: GPU {} is given back: {}", who, uuid, why), {{"gpu", uuid}});
}

// Again only where the text changes, or was not true meanwhile.
void PodWishes::log_once(const std::string& key, const std::string& text) {
  named_.insert(key);
  std::string& logged = logged_[key];
  if (std::exchange(logged, text) != text) options_.log.warning(text);
}

}  // namespace derate
