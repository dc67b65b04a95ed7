// What the sockets of the service have in common: their names, and what can go wrong with them.
#pragma once

#include <sys/un.h>

#include <string>

#include "base/result.h"

namespace derate {

// "WHAT 'PATH': why", by errno: not_found when nobody is there, no_permission, busy when the other
// does not keep up, else io.
Error socket_error(const std::string& what, const std::string& path, int number);

// Errors: invalid_argument when the path is longer than a socket's name may be.
Result<sockaddr_un> address_of(const std::string& path);

}  // namespace derate
