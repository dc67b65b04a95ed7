// The address of a DCGM host engine of this machine, and the users who listen there. The engine's
// port has no authentication, and any user may listen there while no engine does.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

struct DcgmAddress {
  std::string host;  // of this machine; empty: a unix socket
  int port = 0;      // of a host
  std::string path;  // of a unix socket
  bool operator==(const DcgmAddress&) const = default;
};

// The addresses of nv-hostengine without options, and with -d.
std::vector<DcgmAddress> usual_dcgm_addresses();

// "127.0.0.1:5555" or "unix:/tmp/nv-hostengine". Errors: invalid_argument for another machine's
// address, too: its GPUs are not these.
Result<DcgmAddress> parse_dcgm_address(std::string_view text);
std::string to_string(const DcgmAddress& address);

// The users who listen there, as the kernel reports them; empty: nobody does. `proc_net` has the
// tables `tcp` and `tcp6` (proc(5)) of this process's network namespace.
std::vector<uid_t> listeners_of(const DcgmAddress& address,
                                const std::string& proc_net = "/proc/self/net");

// Accepts listeners of root and of `own`, the user of this process. Errors: not_found if nobody
// listens; no_permission, which names another user.
Result<void> check_listeners(const DcgmAddress& address, const std::vector<uid_t>& listeners,
                             uid_t own);

}  // namespace derate
