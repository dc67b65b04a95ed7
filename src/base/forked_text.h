// The text of a function that runs in a process of its own. A call that hangs there, also in the
// kernel, where no signal ends it, does not hold the process that waits for the text.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

struct ForkedText {
  pid_t pid = -1;
  UniqueFd text;
};

// Forks a process that calls `work` and ends, in a session of its own and with /dev/null as
// standard files. Only before this process has threads: the child takes locks as they are. Errors:
// io.
Result<ForkedText> fork_text(const std::function<Result<std::string>()>& work);

// Waits for the text, once. The process is killed after `patience`, and not waited for if it hangs.
// Errors: those of `work`; gpu_stuck after `patience`; bad_data where it ended without a text.
Result<std::string> text_of(ForkedText& forked, Duration patience, Clock& clock);

}  // namespace derate
