// The user of the other end of a TCP connection within this machine, by the kernel's tables of
// connections.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace derate {

// The kernel's tables (proc(5)), of this process's network.
struct TcpTables {
  std::string v4 = "/proc/net/tcp", v6 = "/proc/net/tcp6";
};

// The user who has the socket at the other end of `connection`. Empty: it is of another machine or
// of another network of this one, or nobody has it any more. A socket that is closed on its side
// counts for nobody's: the kernel names root as the user of what is left of it.
std::optional<uid_t> user_of_peer(const UniqueFd& connection, const TcpTables& tables = {});

}  // namespace derate
