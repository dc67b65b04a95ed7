// Client of the kubelet's pod-resources API: lists which pods were given which GPUs, again and
// again on a thread of its own, and keeps the latest answer.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "integ/pod_devices.h"

namespace derate {

struct KubeletOptions {
  std::string socket = "/var/lib/kubelet/pod-resources/kubelet.sock";
  Duration timeout = std::chrono::seconds(5);
  int stop_fd = -1;  // readable: give up
};

// Who holds which device now. Empty when there is no such socket: this is no node of Kubernetes.
// Errors: as call() of unary_call.h and parse_pod_resources(). Blocks for the timeout at most.
Result<std::optional<std::vector<PodDevice>>> list_pods(const KubeletOptions& options,
                                                        const Clock& clock);

// The latest answer, across a kubelet that restarts, hangs or is not there. Pure: see PodWatch.
class PodMemory {
 public:
  // An old answer counts this long: without a kubelet no pod is given a device, but pods end.
  static constexpr Duration kKeep = std::chrono::minutes(5);

  // Takes what was answered at `now`; what is new of it as a sentence, empty when nothing is.
  std::string learn(Result<std::optional<std::vector<PodDevice>>> answer, Instant now);

  const std::vector<PodDevice>& devices() const { return devices_; }

 private:
  std::vector<PodDevice> devices_;
  std::optional<Instant> answered_;
  std::optional<std::string> told_;  // the kind of what was told last
};

// Asks every `period` on a thread of its own, from the construction to the destruction. `clock`
// must outlive it. `log`: of each change, from that thread.
class PodWatch {
 public:
  PodWatch(KubeletOptions options, Duration period, const Clock& clock, Log log);
  ~PodWatch();
  PodWatch(const PodWatch&) = delete;
  PodWatch& operator=(const PodWatch&) = delete;

  // For TenantResolver::know_pods(); empty before the first answer and outside Kubernetes.
  std::vector<PodDevice> devices() const;

 private:
  void run(const KubeletOptions& options, Duration period, const Clock& clock, const Log& log);

  mutable std::mutex mutex_;
  PodMemory memory_;
  UniqueFd stop_;  // an eventfd: a child that was forked off cannot keep it quiet
  std::thread thread_;
};

}  // namespace derate
