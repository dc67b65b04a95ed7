// The one table of exit codes. The manual prints it, the tests read it, main() uses nothing else.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"

namespace derate {

struct ExitCodeInfo {
  int code;
  std::string_view name;
  std::string_view meaning;
};

namespace exit_code {
inline constexpr int kOk = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kPartial = 5;  // of no Errc: several GPUs, each with its own
inline constexpr int kInternalError = 70;
inline constexpr int kRunFailed = 125;
inline constexpr int kCannotExecute = 126;
inline constexpr int kCommandNotFound = 127;
}  // namespace exit_code

// All codes, ascending. Where nvidia-smi has a code for the same thing, it is the same number.
std::span<const ExitCodeInfo> exit_codes();

// The exit code of a failure.
int exit_code_of(Errc code);

}  // namespace derate
