// The account at the end of `derate run` and `derate tune run`, for people and as JSON.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/service_requests.h"
#include "base/text_file.h"
#include "command_options.h"
#include "summary.h"
#include "tune/tuned_run.h"

namespace derate::cli {

struct RunAccount {
  int exit_code = 0;
  Duration time{};
  std::vector<GpuAccount> gpus;         // that were governed
  std::vector<std::string> notes = {};  // a sentence on each GPU that was not governed
  const TunedRun* tuned = nullptr;      // in place of a policy
  Instant now{};
  std::optional<ServiceView> engine = {};  // empty: the command serves no language model
};

// Writes to `file`, else to standard error: standard output is the command's. While the reader
// takes nothing, it calls `goes_on` several times a second and waits as long as that returns true.
// Errors: the file could not be written, and standard error has the account; interrupted: no
// reader.
Result<void> write_account(const RunAccount& account, const RunOptions& options,
                           std::optional<TextFile>& file, const std::function<bool()>& goes_on);

// True for a minute at most, and until a signal comes. Each call calls `alive`.
std::function<bool()> patience_for_reader(std::function<void()> alive = [] {});

}  // namespace derate::cli
