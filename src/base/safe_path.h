// Folders and sockets that no other user has put there, nor can exchange under us.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace derate {

// Root, and the user that this process runs as: who else could do here what they like anyway.
bool is_trusted_user(uid_t user);

// Nobody else may exchange anything on the way to `path`: a folder that everybody may write to must
// be sticky, as /tmp is, and what lies in it must be a trusted user's, links too. What is not there
// yet is nobody's. Relative paths begin at the working folder. Errors: no_permission; the message
// names what is wrong.
Result<void> check_way(const std::string& path);

// The folder, which is made with mode 0700 where there is none, is this process's user's own, no
// link, and has none of the permission bits in `closed` (077: nobody else may even look into it).
// The folders above it must be there. Errors: no_permission, io; the message names the folder, what
// is wrong with it and, where it can be mended, how.
Result<void> make_own_folder(const std::string& path, mode_t closed);

// A datagram that is sent to `path` reaches a trusted user: the socket is theirs, the folder that
// it lies in too, and check_way() holds. The kernel does not tell who reads a datagram socket. A
// socket that is not there passes. Errors: no_permission.
Result<void> check_socket_file(const std::string& path);

// $TMPDIR, or /tmp, and "derate-UID" in it: the folder of last resort, for make_own_folder().
std::string own_temporary_folder();

}  // namespace derate
