// derate top.
#include <fmt/format.h>

#include <utility>

#include "attribute_view.h"
#include "base/json.h"
#include "command_options.h"
#include "live_view.h"
#include "service/records/state_file.h"
#include "service/transport/signals.h"
#include "simulated.h"
#include "status_view.h"
#include "terminal/output.h"
#include "top_past.h"
#include "top_read.h"

namespace derate::cli {
namespace {

// Where no frames can be drawn: a text or a document for each picture.
Result<void> print_pictures(const TopOptions& options, StatusView& view, Clock& clock) {
  const Duration interval = from_seconds(options.interval_s);
  for (int round = 1; stop_signal() == 0; ++round) {
    auto gpus = TRY(view.look(options.gpus));
    mark_simulated(gpus);
    if (options.json)
      print_json_line("top", {{"gpus", gpus}});
    else
      print("{}", status_text(gpus, view.closed(), width_of_terminal()));
    TRY(finish_output());
    if (round == options.rounds || !clock.sleep_until(clock.now() + interval)) break;
  }
  return {};
}

Result<void> show_top(const TopOptions& options, StatusView& view, Screen& screen, Clock& clock) {
  const Duration interval = from_seconds(options.interval_s);
  TopHistory history(interval);
  PastMinute past(options.gpus);
  // The first picture waits so long at most for its charts; of a slow daemon a later one has them.
  Duration patience = std::chrono::milliseconds(150);
  LiveView live{.pace = interval, .rounds = options.rounds};
  live.look = [&](TopPicture& picture) -> Result<bool> {
    const auto gpus = TRY(view.look(options.gpus));
    picture = top_picture(gpus);
    picture.closed = closed_text(view.closed());
    picture.warnings = silent_governors(clock);
    if (const auto kept = past.look(std::exchange(patience, std::chrono::milliseconds(400))))
      history.add_past(past_readings(*kept, clock.now(), clock.wall_now()));
    history.add(picture.gpus, clock.now());
    return true;
  };
  return show_live(std::move(live), screen, clock);
}

}  // namespace

Result<int> run_verb(const TopOptions& options) {
  SystemClock clock;
  StatusView view(clock);
  TRY(view.look(options.gpus));  // what is wrong is told on the user's own screen
  watch_signals();
  auto screen = options.json ? Error{Errc::not_supported, ""} : Screen::open();
  if (screen.ok())
    TRY(show_top(options, view, **screen, clock));
  else
    TRY(print_pictures(options, view, clock));
  screen = Error{Errc::not_supported, ""};  // back to the user's own screen
  return end_of_look(clock);
}

}  // namespace derate::cli
