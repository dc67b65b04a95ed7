#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo utiliz_scale_info();

}  // namespace derate
