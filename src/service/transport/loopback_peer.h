// The user of the other end of a TCP connection within this machine, as the kernel knows it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace derate {

// The user who has the socket at the other end of `connection`. Empty: it is of another machine or
// of another network of this one, or nobody has it any more. A socket that is closed on its side
// counts for nobody's: the kernel names root as the user of what is left of it. The kernel looks
// one connection up (sock_diag(7)), however many there are; only where it does not, its tables are
// read.
std::optional<uid_t> user_of_peer(const UniqueFd& connection);

// The kernel's tables (proc(5)), of this process's network.
struct TcpTables {
  std::string v4 = "/proc/self/net/tcp", v6 = "/proc/self/net/tcp6";
};

// The same by these tables alone. A row may be missed while others come and go: they are read twice
// before there is none.
std::optional<uid_t> user_in_tables(const UniqueFd& connection, const TcpTables& tables = {});

}  // namespace derate
