// Client of the kubelet's Pods API: lists the pods of this node and their annotations each second
// on a thread of its own, and keeps the pods that request how their GPUs are governed.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "integ/kube/pod_roster.h"
#include "integ/pod_requests.h"

namespace derate {

struct PodSources {
  // Of the Pods API. KEP-4188 names the default; derate-pods serves the same for older
  // kubelets.
  std::string pods_socket = "/var/lib/kubelet/pods-api/pods-api.sock";
  std::string resources_socket = "/var/lib/kubelet/pod-resources/kubelet.sock";
  std::string prefix = kPodPrefix;
  Duration timeout = std::chrono::seconds(5);  // of each call
  Duration period = std::chrono::seconds(1);
};

class PodRequestWatch {
 public:
  // Until the socket was there once.
  static constexpr Duration kPeriodWithoutSocket = std::chrono::seconds(10);
  // Until the first look at a new pod's devices.
  static constexpr Duration kPeriodOfWaiting = std::chrono::milliseconds(200);

  // Lists from the construction to the destruction. `clock` must outlive it. `log`: of each change,
  // from that thread.
  PodRequestWatch(PodSources sources, const Clock& clock, Log log);
  ~PodRequestWatch();
  PodRequestWatch(const PodRequestWatch&) = delete;
  PodRequestWatch& operator=(const PodRequestWatch&) = delete;

  // For any thread. Null before the first answer.
  PodRequests latest() const;

 private:
  void run();
  // False: it is to end.
  bool take_devices();
  bool take_pods();
  void publish();
  void log_pods(const Result<std::optional<std::vector<ApiPod>>>& answer);
  void log_devices(const std::string& failure);
  void log_problems();
  Duration period() const;

  const PodSources sources_;
  const Clock& clock_;
  const Log log_;
  PodRoster roster_;
  std::size_t version_ = 0;         // of the API, that the kubelet has
  bool answered_ = false;           // once
  bool devices_failed_ = false;     // the last list
  bool waiting_ = false;            // a pod did, in the last round
  std::string logged_;              // the kind of what was logged last of the Pods API
  std::set<std::string> problems_;  // that were logged
  mutable std::mutex mutex_;
  PodRequests latest_;  // by mutex_
  UniqueFd stop_;       // an eventfd: a child that was forked off cannot keep it quiet
  std::thread thread_;
};

}  // namespace derate
