// The user at the other end of a TCP connection within this machine, as the kernel reports it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace derate {

// The user of the socket at the other end of `connection`. Empty if that socket is on another
// machine or in another network namespace, or if no process has it any more. A socket that its
// process has closed has no user: the kernel names root for its remains. The kernel looks up one
// connection (sock_diag(7)), however many there are. If it cannot, its tables are read.
std::optional<uid_t> user_of_peer(const UniqueFd& connection);

// The kernel's tables (proc(5)) of this process's network namespace.
struct TcpTables {
  std::string v4 = "/proc/self/net/tcp", v6 = "/proc/self/net/tcp6";
};

// Like user_of_peer(), by these tables alone. A row may be missed while others come and go, so the
// tables are read twice before the result is empty.
std::optional<uid_t> user_in_tables(const UniqueFd& connection, const TcpTables& tables = {});

}  // namespace derate
