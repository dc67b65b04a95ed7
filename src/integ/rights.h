// Rights of this process over GPUs: whether it may lock clocks and set power limits.
#pragma once

namespace derate {

// NVML locks clocks and sets power limits for root, and for who has CAP_SYS_ADMIN.
bool may_set_clocks();

}  // namespace derate
