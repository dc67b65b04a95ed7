#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo assure_info();

}  // namespace derate
