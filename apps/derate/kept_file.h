// Path of a database that a daemon has kept (history.db, usage.db), to be read without the daemon.
#pragma once

#include <string>

namespace derate::cli {

// Of this user's daemon, else of the system's: `own`, or the file of that name in /var/lib/derate
// where only that is there.
std::string kept_file(const std::string& own, const std::string& name);

}  // namespace derate::cli
