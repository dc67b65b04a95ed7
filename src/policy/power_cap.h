#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo power_cap_info();

}  // namespace derate
