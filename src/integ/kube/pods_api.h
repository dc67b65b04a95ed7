// The answer of the kubelet's Pods API (KEP-4188) to ListPods, read pod by pod as it comes: names,
// UIDs and the annotations of one prefix. All else in a pod, which may be a megabyte, is passed
// over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "integ/pod_devices.h"
#include "integ/pod_wish.h"

namespace derate {

struct ApiPod {
  PodName name;
  std::string uid;
  bool finished = false;       // its containers have ended for good: it has no device any more
  PodAnnotations annotations;  // of the prefix

  bool operator==(const ApiPod&) const = default;
};

class PodsReader {
 public:
  // etcd's limit of an object is 1.5 MiB, and a node has at most 110 pods unless its kubelet allows
  // more.
  static constexpr std::size_t kMostPods = 20000, kMostPodBytes = 4 << 20;
  // A value is cut there: none that parses is longer.
  static constexpr std::size_t kLongestValue = 256;

  explicit PodsReader(const std::string& prefix) : key_begin_(prefix + "/") {}

  // The next bytes of a ListPodsResponse. Errors: bad_data for what is no protobuf, for a pod whose
  // name or UID Kubernetes does not allow, and beyond the limits; no more is to be given then.
  Result<void> take(std::string_view piece);
  // All pods, in the answer's order. Errors: bad_data where the answer ends within a field.
  Result<std::vector<ApiPod>> finish() &&;

 private:
  std::string key_begin_;
  std::string rest_;  // the beginning of a field that is not here whole
  std::vector<ApiPod> pods_;
};

}  // namespace derate
