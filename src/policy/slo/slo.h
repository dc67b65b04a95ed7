// slo: the clock that keeps a latency promise of an engine that serves a language model.
#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo slo_info();

}  // namespace derate
