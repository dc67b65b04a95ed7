// derate events: what happened, and to which GPU.
#include <fmt/format.h>

#include "api/requests.h"
#include "base/json.h"
#include "base/percent.h"
#include "base/text.h"
#include "command_options.h"
#include "events_view.h"
#include "history_source.h"
#include "service/http/api_call.h"
#include "service/http/event_reader.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr std::int64_t kMostEvents = 10000;

Result<void> show(const EventView& event, bool json) {
  if (json)
    print_json_line("events", answer_json(EventsAnswer{{event}}));
  else
    print("{}", event_line(event));
  return finish_output();
}

// Until the stream ends. The last event's number is kept for the next.
Result<HttpResponse> follow_once(const std::string& socket, const EventsOptions& options,
                                 std::optional<std::int64_t>& last, Result<void>& shown) {
  HttpAsk ask{.target = "/v1/events"};
  if (!options.gpu.empty()) ask.target += "?gpu=" + percent_encoded(options.gpu);
  ask.fields.emplace_back("Accept", "text/event-stream");
  if (last) ask.fields.emplace_back("Last-Event-ID", fmt::format("{}", *last));
  EventReader reader;
  return http_stream(socket, ask, signal_source().fd, [&](std::string_view piece) {
    for (const StreamedEvent& each : reader.take(piece)) {
      if (each.id) last = each.id;
      const auto event = event_of(each);
      if (each.name == "missed")
        warn("derate: {} events were missed\n", missed_of(each));
      else if (event)
        shown = show(*event, options.json);
      if (!shown.ok()) return false;
    }
    return stop_signal() == 0;
  });
}

// A daemon that is restarted is asked again from where it ended.
Result<int> follow(const EventsOptions& options, std::optional<std::int64_t> last) {
  watch_signals();
  SystemClock clock;
  std::string socket = TRY(find_api());
  Result<void> shown;
  bool told = false;
  constexpr Duration kPause = std::chrono::seconds(1);
  while (stop_signal() == 0) {
    const auto ended = follow_once(socket, options, last, shown);
    if (!shown.ok()) return shown.error();
    if (stop_signal() != 0) break;
    if (ended.ok() && ended->status != 200) {
      const auto answer = api_answer(*ended);
      if (!answer.ok() && answer.error().code != Errc::busy) return answer.error();
    }
    if (!ended.ok() && ended.error().code == Errc::no_permission) return ended.error();
    if (!std::exchange(told, true)) warn("derate: the stream ended; trying again each second\n");
    clock.sleep_until(clock.now() + kPause);
    if (const auto found = find_api(); found.ok()) {
      socket = *found;
      told = false;
    }
  }
  return 0;
}

}  // namespace

Result<int> run_verb(const EventsOptions& options) {
  const WallTime now = SystemClock().wall_now();
  constexpr std::int64_t kLastFew = 10;
  const bool few = options.follow && options.from.empty();
  EventsRead request{.gpu = options.gpu, .most = few ? kLastFew : kMostEvents};
  request.fold = !options.json && !options.each;
  if (!few)
    request.from = TRY(moment_text("--from", options.from.empty() ? "now-1d" : options.from, now));
  if (!options.to.empty()) request.to = TRY(moment_text("--to", options.to, now));
  const auto answer = TRY(ask_history(request, options.file));
  if (options.json && !options.follow) return print_json("events", answer_json(answer));
  for (const EventView& event : answer.events) TRY(show(event, options.json));
  if (!options.json && !few && !options.each) print("{}", counts_line(answer));
  if (options.follow) {
    std::optional<std::int64_t> last;
    if (!answer.events.empty()) last = answer.events.back().id;
    return follow(options, last);
  }
  if (answer.events.empty()) print("Nothing happened in that time.\n");
  if (answer.events.size() == kMostEvents)
    print("These are the newest {} of {}: --to shows older ones.\n", kMostEvents, answer.total);
  return 0;
}

}  // namespace derate::cli
