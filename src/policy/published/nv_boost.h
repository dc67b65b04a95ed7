#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo nv_boost_info();

}  // namespace derate
