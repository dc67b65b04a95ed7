#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo efficient_fix_info();

}  // namespace derate
