// derate history: what GPUs and their tenants drew, at which clocks, and what was saved.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "api/requests.h"
#include "attribute_view.h"
#include "base/json.h"
#include "command_options.h"
#include "history_source.h"
#include "history_view.h"
#include "service/http/api_call.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// Of the terminal; 24 lines where there is none.
Look look_of_output() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  constexpr std::size_t kLines = 24;
  // One line is left for the prompt that follows.
  const std::size_t lines = known ? std::size_t{size.ws_row} - 1 : kLines;
  return {.width = terminal_width(), .height = lines, .utf8 = shows_utf8()};
}

// Of the daemon's GPUs; nothing where none runs: then one scale is for all.
HistoryLimits limits_of_daemon(const HistoryOptions& options, HistoryWhat what,
                               double step_seconds) {
  if (!options.file.empty()) return {};
  const auto status = api_ask(StatusRead{});
  const auto gpus = status.ok() ? status->find("gpus") : Json::const_iterator();
  if (!status.ok() || gpus == status->end()) return {};
  return history_limits(*gpus, what, step_seconds);
}

}  // namespace

Result<int> run_verb(const HistoryOptions& options) {
  const HistoryWhat what = TRY(parse_history_what(options.what));
  const Look look = look_of_output();
  const WallTime now = SystemClock().wall_now();
  HistoryRead request{.gpus = options.gpus, .kind = options.tenants ? "tenant" : "gpu"};
  request.from = TRY(moment_text("--from", options.from, now));
  request.to = TRY(moment_text("--to", options.to, now));
  const bool picture = !options.json && !options.csv;
  if (options.points > 0)
    request.points = options.points;
  else if (picture)
    request.points = history_points(what, look);
  const auto answer = TRY(ask_history(request, options.file));
  if (options.json) return print_json("history", answer_json(answer));
  if (options.csv) {
    print("{}", history_csv(answer));
  } else {
    const auto limits = limits_of_daemon(options, what, answer.step_seconds);
    print("{}", toned(history_frame(answer, what, look, limits)));
  }
  return 0;
}

}  // namespace derate::cli
