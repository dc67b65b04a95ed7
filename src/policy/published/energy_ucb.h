#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo energy_ucb_info();

}  // namespace derate
