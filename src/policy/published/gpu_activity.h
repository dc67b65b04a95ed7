#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo gpu_activity_info();

}  // namespace derate
