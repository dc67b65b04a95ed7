#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo sweet_spot_info();

}  // namespace derate
