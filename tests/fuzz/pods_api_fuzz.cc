// Fuzzes the answer of the kubelet's Pods API, in pieces, and the annotations in it.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "integ/kube/pods_api.h"
#include "integ/pod_wish.h"

// The first byte is the size of the pieces.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace derate;
  if (size == 0) return 0;
  const std::size_t piece = std::size_t{data[0]} + 1;
  const std::string_view message(reinterpret_cast<const char*>(data + 1), size - 1);
  PodsReader reader("derate.dev");
  for (std::size_t at = 0; at < message.size(); at += piece)
    if (!reader.take(message.substr(at, piece)).ok()) return 0;
  const auto pods = std::move(reader).finish();
  if (!pods.ok()) return 0;
  for (const ApiPod& pod : *pods) {
    CHECK(!pod.uid.empty() && !pod.name.pod.empty() && !pod.name.name_space.empty());
    const auto wish = parse_pod_wish(pod.annotations);
    if (wish.ok() && *wish && (*wish)->delta) CHECK(*(*wish)->delta > 0 && *(*wish)->delta <= 0.5);
  }
  return 0;
}
