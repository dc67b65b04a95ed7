// Policies of other authors for engines that serve language models. The lab compares `slo` with
// them; the product does not offer them.
#pragma once

#include <span>

#include "policy/policy.h"

namespace derate {

PolicyInfo agft_info();
PolicyInfo linear_itl_info();
PolicyInfo serving_pid_info();

// All of them.
std::span<const PolicyInfo> serving_rivals();

}  // namespace derate
