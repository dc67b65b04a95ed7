// The policies that decide without a model, as rows of the table of policies.
#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo max_freq_info();
PolicyInfo power_cap_info();

}  // namespace derate
