// The users who listen at the address of a DCGM host engine. Its port has no authentication, and
// any user may listen there while no engine does.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "core/dcgm_address.h"

namespace derate {

// The addresses of nv-hostengine without options, and with -d.
std::vector<DcgmAddress> usual_dcgm_addresses();

// The users who listen there, as the kernel reports them; empty: nobody does. `proc_net` has the
// tables `tcp` and `tcp6` (proc(5)) of this process's network namespace.
std::vector<uid_t> listeners_of(const DcgmAddress& address,
                                const std::string& proc_net = "/proc/self/net");

// Accepts listeners of root and of `own`, the user of this process. Errors: not_found if nobody
// listens; no_permission, which names another user.
Result<void> check_listeners(const DcgmAddress& address, const std::vector<uid_t>& listeners,
                             uid_t own);

}  // namespace derate
