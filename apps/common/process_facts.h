// What the kernel tells of a process, from /proc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "govern/job_classes.h"
#include "govern/tenant.h"

namespace derate::cli {

using ProcessReader = std::function<std::optional<ProcessFacts>(std::int64_t pid)>;

// Empty when there is no such process. Its DERATE_DELTA is left out where it may not be read, which
// takes the same user, or CAP_SYS_PTRACE.
std::optional<ProcessFacts> read_process(std::int64_t pid);

// The rules of the settings; what cannot hold on this machine is told.
PromiseRules promise_rules(const Settings& settings,
                           const std::function<void(const std::string& text)>& tell);

}  // namespace derate::cli
