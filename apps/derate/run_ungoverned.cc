#include "run_ungoverned.h"

#include <vector>

#include "base/clock.h"
#include "run_command.h"
#include "run_report.h"
#include "service/transport/listen.h"
#include "service/transport/signals.h"

namespace derate::cli {

Result<int> run_ungoverned(const RunOptions& options, const std::optional<RunAs>& as,
                           const std::string& why, const UngovernedHooks& hooks, const Log& log) {
  constexpr Duration kLook = std::chrono::milliseconds(100);
  log.warning(why + "; the command runs, and no GPU is governed");
  std::optional<TextFile> file;
  if (!options.report.empty()) file = TRY(TextFile::create(options.report));
  watch_signals();
  SystemClock clock;
  const Instant begin = clock.now();
  auto started = TRY(Child::start(options.command, {.as = as}));
  if (!started.child) {
    log.error(started.message);
    return started.exit_code;
  }
  hooks.started(started.child->pid());
  std::optional<int> code;
  while (!(code = started.child->poll())) {
    hooks.alive();
    listen_until(std::vector<PollSource>{signal_source()}, clock, clock.now() + kLook);
    pass_signals_on(*started.child);
  }
  const RunAccount account{
      .exit_code = *code, .time = clock.now() - begin, .gpus = {}, .notes = {why}};
  const auto written = write_account(account, options, file, patience_for_reader(hooks.alive));
  if (!written.ok()) log.error(written.error().message);
  return *code;
}

}  // namespace derate::cli
