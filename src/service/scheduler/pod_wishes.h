// GPUs that are governed as the annotations of Kubernetes pods request. Of several pods that share
// a GPU the strictest decides; pods without an annotation do not count. It runs on one thread and
// never blocks.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "config/settings.h"
#include "govern/fleet/fleet.h"
#include "integ/pod_requests.h"
#include "service/answers/request_rules.h"
#include "service/scheduler/pod_match.h"

namespace derate {

class PodWishes {
 public:
  struct Options {
    // The newest answer of the kubelet, at once. Empty: there is none.
    std::function<PodRequests()> pods = {};
    Log log = {};
  };
  // After a failure, and at most so long after more failures of the same: twice as long each time.
  static constexpr Duration kAgainAfter = std::chrono::seconds(1),
                            kLongestAgain = std::chrono::seconds(60);
  // Of a GPU: authors of pods can change annotations each second. A change that loses less is made
  // at once; one that loses more waits when there were so many, of which each counts this long.
  static constexpr std::size_t kMostChanges = 60;
  static constexpr Duration kChangeCounts = std::chrono::hours(1);

  // `clock` and `fleet` outlive it.
  PodWishes(Clock& clock, Fleet& fleet, Options options)
      : clock_(clock), fleet_(fleet), options_(std::move(options)) {}
  PodWishes(const PodWishes&) = delete;
  PodWishes& operator=(const PodWishes&) = delete;

  void rules(RequestRules rules, const KubernetesSettings& settings);
  // Once a round, while the fleet is open: governs what pods request now, gives back the rest.
  void step(const InstanceGpus& instances);

 private:
  // The pod that decides on a GPU.
  struct Decision {
    std::string who;                         // "pod NAMESPACE/NAME"
    std::optional<PolicyAssignment> policy;  // empty: the GPU is only observed
    bool operator==(const Decision&) const = default;
  };
  struct Failure {
    Decision of;
    Duration wait{};
    Instant again{};
  };

  void log_once(const std::string& key, const std::string& text);
  std::optional<Decision> decision_of(const PodRequest& pod);
  std::optional<Decision> decide(const ManagedGpu& gpu, const std::vector<const PodRequest*>& pods);
  std::optional<PolicyAssignment> policy_for(const ManagedGpu& gpu, const Decision& decision) const;
  void withdraw(const std::string& uuid, const char* why);
  Result<void> check_operators(const ManagedGpu& gpu, const Decision& decision) const;
  bool is_in_force(const ManagedGpu& gpu, const Decision& decision) const;
  bool may_change(const ManagedGpu& gpu, const Decision& decision);
  void give(std::size_t at, const Decision& decision);
  void fail(const ManagedGpu& gpu, const Decision& decision, const std::string& why);
  void give_back(const std::string& uuid, const char* why);
  void step(std::size_t at, const std::vector<const PodRequest*>& pods);

  Clock& clock_;
  Fleet& fleet_;
  Options options_;
  RequestRules rules_;
  std::set<std::string> namespaces_;                    // empty: all
  std::map<std::string, Decision> given_;               // by the GPU's UUID
  std::map<std::string, Failure> failed_;               // the same
  std::map<std::string, std::deque<Instant>> changes_;  // the same: when they were made
  std::map<std::string, std::string> logged_;           // the newest text of each pod or GPU
  std::set<std::string> named_;  // keys of `logged_` that this round has used
};

}  // namespace derate
