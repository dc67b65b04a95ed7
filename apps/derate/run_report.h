// The account at the end of `derate run` and `derate tune run`, for people and as JSON.
#pragma once

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

// To `file`, else to standard error: standard output is the command's. Errors: it could not be
// written; then it is on standard error.
Result<void> write_account(const RunAccount& account, const RunOptions& options,
                           std::optional<TextFile>& file);

}  // namespace derate::cli
