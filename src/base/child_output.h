// The output of a command that ends soon.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace derate {

struct ChildOutput {
  int exit_code = 0;         // 128 + the signal, where one ended it
  std::string text, errors;  // of standard output, and of standard error
};

// Runs the command to its end. After `patience`, or more than `most` bytes of either, it is killed,
// and not waited for where it hangs in the kernel.
// Errors: not_found where there is no such command; gpu_stuck where it does not end in time; io.
Result<ChildOutput> output_of(const std::vector<std::string>& command, Duration patience,
                              Clock& clock, std::size_t most = 1 << 20);

}  // namespace derate
