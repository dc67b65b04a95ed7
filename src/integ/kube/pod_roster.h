// Pods that request how their GPUs are governed: the answers of the Pods API joined with those of
// the pod-resources API, which names pods by namespace and name alone. Pure: see PodRequestWatch.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "integ/kube/pods_api.h"
#include "integ/pod_requests.h"

namespace derate {

class PodRoster {
 public:
  // The last answers count this long after the kubelet has stopped answering.
  static constexpr Duration kKeep = std::chrono::minutes(5);

  // Each round first takes the devices, then the pods. A pod's devices are those that were listed
  // between two lists of pods that have its UID: its name alone may have been another pod's. Empty
  // answers (no socket) and errors leave what was known. So does a list without any device while a
  // pod that is listed had some: a kubelet that has just started.
  // `now`: after the answer.
  void take_devices(Result<std::optional<std::vector<PodDevice>>> answer, Instant now);
  void take_pods(Result<std::optional<std::vector<ApiPod>>> answer, Instant now);

  // Those whose devices are known, ordered by UID.
  std::vector<PodRequest> requests(Instant now) const;
  // Sentences about pods whose annotations count for nothing, each with the pod's name.
  const std::vector<std::string>& problems() const { return problems_; }
  // A pod has annotations of the prefix: devices have to be listed.
  bool wants_devices() const { return !wishing_.empty(); }
  // The next list of devices makes requests of more pods.
  bool is_waiting() const;

 private:
  struct Wishing {
    ApiPod pod;
    PodWish wish;
  };

  bool has_devices() const;
  void choose_wishing(const std::vector<ApiPod>& pods);

  std::set<std::string> uids_;    // of the last list of pods
  std::set<std::string> before_;  // of the list before the devices
  std::vector<PodDevice> devices_;
  std::vector<Wishing> wishing_;  // ordered by UID; each may have devices
  std::vector<std::string> problems_;
  std::vector<PodRequest> requests_;
  std::optional<Instant> devices_at_, pods_at_;
};

}  // namespace derate
