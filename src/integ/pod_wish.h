// The annotations by which the author of a Kubernetes pod says how the pod's GPUs may be governed.
// Pure: text in, values out.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace derate {

// The default of the part before the slash in the annotations' keys.
inline constexpr const char* kPodPrefix = "derate.dev";

// Annotations of one pod whose keys begin with the prefix and "/"; keys without both.
using PodAnnotations = std::vector<std::pair<std::string, std::string>>;

struct PodWish {
  bool govern = true;           // false: the pod's GPUs are only observed
  std::optional<double> delta;  // the most performance that may be lost, in (0, 0.5]
  std::string policy;           // empty: that of the configuration

  bool operator==(const PodWish&) const = default;
};

// The wish in a pod's annotations "delta", "policy" and "govern"; other keys are passed over.
// Empty: there is none of these keys. A delta of 0 is a wish that nothing be lost, so that it
// counts as govern "false". Errors: invalid_argument for a value that does not parse: the pod has
// no wish then.
Result<std::optional<PodWish>> parse_pod_wish(const PodAnnotations& annotations);

}  // namespace derate
