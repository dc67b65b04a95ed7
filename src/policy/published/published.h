// The policies of other authors, as published.
#pragma once

#include "policy/policy.h"

namespace derate {

PolicyInfo efficient_fix_info();
PolicyInfo energy_ucb_info();
PolicyInfo geepafs_info();
PolicyInfo gpu_activity_info();
PolicyInfo nv_boost_info();
PolicyInfo sweet_spot_info();
PolicyInfo utiliz_scale_info();

}  // namespace derate
