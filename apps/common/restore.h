// Putting back what a journal says, in a process that may hang and be killed.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "store/journal.h"

namespace derate::cli {

// Opens the entry's GPU, puts back what was written and removes the entry; the audit log tells.
// Errors: those of opening the GPU and of its writes. The entry stays then.
Result<void> restore_journalled(const JournalEntry& entry, const std::string& who,
                                const std::string& why);

// The exit code of a process that restores the GPU of that UUID, telling on standard error; 0 also
// when there is nothing to restore.
int restore_process(const std::string& uuid, const std::string& who, const std::string& why);

// The GPUs whose entries the process `writer` has left.
std::vector<std::string> left_by(pid_t writer);

// Sets unusable journals aside, saying so on standard error, and removes unfinished ones.
void set_unusable_aside(const Leftovers& left);

}  // namespace derate::cli
