// Environment variables of a command by which its kernel launches are counted: LD_PRELOAD of
// libderate_progress.so (docs/progress.md).
#pragma once

#include <string>
#include <vector>

#include "base/log.h"

namespace derate::cli {

// Adds variables, over ours, by which `command` and what it starts count their launches. Nothing is
// added where the user has switched counting off (DERATE_PROGRESS), and, with a warning, where the
// library is missing or the command would hand LD_PRELOAD on to where the library is not.
void count_launches(const std::vector<std::string>& command, std::vector<std::string>& environment,
                    const Log& log);

}  // namespace derate::cli
