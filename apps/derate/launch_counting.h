// What a command needs so that its launches are counted (docs/progress.md).
#pragma once

#include <string>
#include <vector>

#include "base/log.h"

namespace derate::cli {

// Adds variables, over ours, by which the command and what it starts count their launches. Where
// the counter is not there it is told, and nothing is added; where the user has switched it off
// (DERATE_PROGRESS) nothing is either.
void count_launches(std::vector<std::string>& environment, const Log& log);

}  // namespace derate::cli
