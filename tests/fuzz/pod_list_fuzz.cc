// Any bytes as the API server's list of pods and as an event of its watch: pods that the reader of
// the Pods API reads back, or an error that prints, never a crash.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "integ/kube/pod_list.h"
#include "integ/kube/pods_api.h"

namespace {

using namespace derate;

const std::string kPrefix = "derate.dev";

void check_error(const Error& error) {
  CHECK(error.code == Errc::bad_data && error.message.size() < 1000);
  for (const char c : error.message) CHECK(c >= ' ' && c <= '~');
}

void check_pod(const NodePod& pod) {
  CHECK(pod.annotations.size() <= NodePod::kMostKeys);
  for (const auto& [key, value] : pod.annotations) {
    CHECK(key.starts_with(kPrefix + "/"));
    CHECK(value.size() <= NodePod::kLongestValue + 3);
  }
  PodsReader reader(kPrefix);
  CHECK(reader.take(encode_listed_pod(pod)).ok());
  const auto read = std::move(reader).finish();
  CHECK(read.ok() && read->size() == 1);
  const ApiPod& back = read->front();
  CHECK(back.name.pod == pod.name && back.name.name_space == pod.name_space);
  CHECK(back.uid == pod.uid && back.annotations.size() == pod.annotations.size());
  CHECK(back.finished == (pod.phase == "Succeeded" || pod.phase == "Failed"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto list = parse_pod_list(text, kPrefix);
  if (!list.ok()) check_error(list.error());
  if (list.ok()) std::for_each(list->pods.begin(), list->pods.end(), check_pod);
  const auto change = parse_pod_change(text, kPrefix);
  if (!change.ok()) check_error(change.error());
  if (change.ok() &&
      (change->kind == PodChange::Kind::present || change->kind == PodChange::Kind::deleted))
    check_pod(change->pod);
  return 0;
}
