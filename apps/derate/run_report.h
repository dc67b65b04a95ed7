// The account at the end of `derate run` and `derate tune run`, for people and as JSON.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/text_file.h"
#include "command_options.h"
#include "summary.h"
#include "tune/tuned_run.h"

namespace derate::cli {

struct RunAccount {
  int exit_code = 0;
  Duration time{};
  std::vector<GpuAccount> gpus;         // that were governed
  std::vector<std::string> notes = {};  // sentences on those that were not
  const TunedRun* tuned = nullptr;      // in place of a policy
  Instant now{};
};

// To `file`, else to standard error: standard output is the command's. A reader who takes nothing
// is waited for as long as `goes_on`, which is called some times a second. Errors: it could not be
// written to the file; then it is on standard error. interrupted: nobody took it.
Result<void> write_account(const RunAccount& account, const RunOptions& options,
                           std::optional<TextFile>& file, const std::function<bool()>& goes_on);

// Until a signal comes, and for a minute at most; `alive` is called.
std::function<bool()> patience_for_reader(std::function<void()> alive = [] {});

}  // namespace derate::cli
