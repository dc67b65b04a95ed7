#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo max_freq_info();

}  // namespace derate
