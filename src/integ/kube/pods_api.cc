#include "integ/kube/pods_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "integ/kube/protobuf.h"

namespace derate {
namespace {

// A DNS subdomain, and a namespace is a label of one. A UID has 36 characters, a static pod's 32.
constexpr std::size_t kLongestSubdomain = 253, kLongestUid = 64;

Error bad_pods(std::string what) { return {Errc::bad_data, std::move(what)}; }

bool is_name(std::string_view text, std::size_t longest) {
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
         });
}

// Of a field given more than once the last counts.
std::string last_of(const std::vector<std::string_view>& texts) {
  return texts.empty() ? std::string() : std::string(texts.back());
}

// An entry of a map: 1 key, 2 value.
Result<void> read_annotation(std::string_view entry, std::string_view key_begin,
                             PodAnnotations& out) {
  const auto fields = TRY(fields_of(entry, 2));
  const std::string_view key = fields[1].empty() ? "" : fields[1].back();
  if (!key.starts_with(key_begin) || key.size() > kLongestSubdomain + 64) return {};
  const std::string_view value = fields[2].empty() ? "" : fields[2].back();
  out.emplace_back(key.substr(key_begin.size()), value.substr(0, PodsReader::kLongestValue));
  return {};
}

// ObjectMeta: 1 name, 3 namespace, 5 uid, 12 annotations.
Result<void> read_metadata(std::string_view message, std::string_view key_begin, ApiPod& pod) {
  const auto fields = TRY(fields_of(message, 12));
  pod.name = {.name_space = last_of(fields[3]), .pod = last_of(fields[1])};
  pod.uid = last_of(fields[5]);
  if (!is_name(pod.name.pod, kLongestSubdomain) || !is_name(pod.name.name_space, kLongestSubdomain))
    return bad_pods("a pod whose name or namespace Kubernetes does not allow");
  if (!is_name(pod.uid, kLongestUid))
    return bad_pods(fmt::format("pod {}/{}: its UID is none", pod.name.name_space, pod.name.pod));
  for (const std::string_view entry : fields[12])
    TRY(read_annotation(entry, key_begin, pod.annotations));
  return {};
}

// Numbers of fields: k8s.io/api/core/v1/generated.proto and
// k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto. Pod: 1 metadata, 3 status; PodStatus: 1
// phase.
Result<ApiPod> read_pod(std::string_view message, std::string_view key_begin) {
  const auto fields = TRY(fields_of(message, 3));
  if (fields[1].size() != 1) return bad_pods("a pod without metadata");
  ApiPod out;
  TRY(read_metadata(fields[1].front(), key_begin, out));
  if (fields[3].empty()) return out;
  const auto status = TRY(fields_of(fields[3].back(), 1));
  const std::string phase = last_of(status[1]);
  out.finished = phase == "Succeeded" || phase == "Failed";
  return out;
}

constexpr const char* kWhere = "answer of the Pods API";

Error too_large() {
  return bad_pods(
      fmt::format("{}: a pod of more than {} bytes", kWhere, PodsReader::kMostPodBytes));
}

}  // namespace

// ListPodsResponse: 1 pods (k8s.io/kubelet/pkg/apis/pods/v1alpha1/api.proto).
Result<void> PodsReader::take(std::string_view piece) {
  rest_ += piece;
  std::string_view left = rest_;
  for (;;) {
    const auto field = TRY(find_field(left).with(kWhere));
    if (!field) break;
    if (field->number != 1 || field->wire != Wire::length) continue;
    if (pods_.size() >= kMostPods)
      return bad_pods(fmt::format("{}: more than {} pods", kWhere, kMostPods));
    if (field->bytes.size() > kMostPodBytes) return too_large();
    pods_.push_back(TRY(read_pod(field->bytes, key_begin_).with(kWhere)));
  }
  rest_.erase(0, rest_.size() - left.size());
  if (rest_.size() > kMostPodBytes) return too_large();
  return {};
}

Result<std::vector<ApiPod>> PodsReader::finish() && {
  if (!rest_.empty())
    return bad_pods(fmt::format("{}: the last {} bytes are no whole field", kWhere, rest_.size()));
  return std::move(pods_);
}

}  // namespace derate
