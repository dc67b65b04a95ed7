// Addresses of unix sockets, errors of using them, and the check of a listener's user.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <string>

#include "base/result.h"

namespace derate {

// "WHAT 'PATH': why", by errno: not_found when nobody is there, no_permission, busy when the other
// does not keep up, else io.
Error socket_error(const std::string& what, const std::string& path, int number);

// Errors: invalid_argument when the path is longer than a socket's name may be.
Result<sockaddr_un> address_of(const std::string& path);

// A daemon's socket for heartbeats to which only that user and root can send: "beats/UID.sock" in
// its run folder.
std::string own_beat_socket(const std::string& run_folder, uid_t user);

// Whoever listens at the other end of a connected stream socket is root or this process's own user
// (SO_PEERCRED): nobody else is told anything, or believed. Errors: no_permission.
Result<void> check_listener(int socket, const std::string& path);

}  // namespace derate
