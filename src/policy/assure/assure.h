// The policy `assure` as a row of the table of policies, with its parameters.
#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo assure_info();

}  // namespace derate
