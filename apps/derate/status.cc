// derate status and derate top.
#include <fmt/format.h>
#include <cstdio>

#include "base/exit_code.h"
#include "base/json.h"
#include "command_options.h"
#include "service/signals.h"
#include "service/state_file.h"
#include "simulated.h"
#include "status_view.h"
#include "terminal/output.h"
#include "terminal/screen.h"

namespace derate::cli {
namespace {

// Of who should have told more: the table is not all there is to know.
int end_of_look(Clock& clock) {
  const auto silent = silent_governors(clock);
  for (const std::string& who : silent) warn("derate: {}\n", who);
  return silent.empty() ? exit_code::kOk : exit_code_of(Errc::gpu_stuck);
}

}  // namespace

Result<int> run_verb(const StatusOptions& options) {
  SystemClock clock;
  StatusView view(clock);
  auto gpus = TRY(view.look(options.gpus));
  mark_simulated(gpus);
  if (options.json)
    print_json("status", {{"paused", view.paused()}, {"gpus", gpus}});
  else
    print("{}", status_text(gpus, view.paused()));
  return end_of_look(clock);
}

Result<int> run_verb(const TopOptions& options) {
  SystemClock clock;
  StatusView view(clock);
  TRY(view.look(options.gpus));  // what is wrong is told on the user's own screen
  watch_signals();
  std::optional<Screen> screen;
  if (!options.json) screen.emplace();
  const Duration interval = from_seconds(options.interval_s);
  for (int round = 1; stop_signal() == 0; ++round) {
    auto gpus = TRY(view.look(options.gpus));
    mark_simulated(gpus);
    if (options.json)
      print_json_line("top", {{"gpus", gpus}});
    else
      screen->show(status_text(gpus, view.paused()));
    if (round == options.rounds) break;
    if (screen ? screen->quit(interval, clock) : !clock.sleep_until(clock.now() + interval)) break;
  }
  screen.reset();
  return end_of_look(clock);
}

}  // namespace derate::cli
