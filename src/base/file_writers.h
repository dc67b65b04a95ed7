// POSIX access control lists of files: permission for one more user.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace derate {

// Gives the file mode 0600 and lets `user` read and write it, too. The owner needs no capability
// for that, where chown(2) needs CAP_CHOWN. Errors: not_supported where the file system keeps no
// access control lists, not_found, no_permission, io.
Result<void> add_writer(const std::string& path, uid_t user);

}  // namespace derate
