// Pods of a node as the Kubernetes API server lists and watches them (JSON), and as the kubelet's
// Pods API answers ListPods (protobuf). Only names, UIDs, states and the annotations of one prefix
// are kept. Pure: text in, values out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// Limits of an API server's answer.
inline constexpr std::size_t kMostPodListBytes = 64 << 20, kMostListedPods = 10'000;

struct NodePod {
  std::string name, name_space, uid, node, phase;
  std::optional<std::int64_t> deleted_s;  // deletionTimestamp, seconds since 1970; 0: not a time
  // Keys with the prefix. A longer value than kLongestValue is cut there and gets an end that makes
  // it no value of any key. Of more keys than kMostKeys the first are kept, without their values: a
  // pod cannot make the list too large to be read.
  std::map<std::string, std::string> annotations;

  static constexpr std::size_t kLongestValue = 4096, kMostKeys = 8;
  bool operator==(const NodePod&) const = default;
};

struct NodePods {
  std::string version;  // resourceVersion of the list
  std::vector<NodePod> pods;

  bool operator==(const NodePods&) const = default;
};

// A PodList or a PartialObjectMetadataList of the API server. Annotations are kept whose keys begin
// with `prefix` and "/". Errors: bad_data for what is neither, is not the whole list, is beyond the
// limits, or has a pod whose name, namespace or UID Kubernetes does not allow.
Result<NodePods> parse_pod_list(std::string_view json, const std::string& prefix);

// An event of a watch.
struct PodChange {
  enum class Kind : std::uint8_t { present, deleted, bookmark, failed };
  Kind kind = Kind::bookmark;
  NodePod pod;          // of present and deleted
  std::string version;  // resourceVersion of the pod or the bookmark; empty where it has none
};

// A line of a watch. Errors: as above.
Result<PodChange> parse_pod_change(std::string_view json, const std::string& prefix);

// The pod as an entry of ListPodsResponse. The message is its entries one after another.
std::string encode_listed_pod(const NodePod& pod);

}  // namespace derate
