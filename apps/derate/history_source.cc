#include "history_source.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/safe_path.h"
#include "base/when.h"
#include "config/paths.h"
#include "kept_file.h"
#include "service/history_queries.h"
#include "service/http/api_call.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Result<Json> read_file_of(const std::string& file, const HistoryRead& request, WallTime now) {
  return answer_history(file, request, now);
}
Result<Json> read_file_of(const std::string& file, const SavingsRead& request, WallTime now) {
  return answer_savings(file, request, now);
}
Result<Json> read_file_of(const std::string& file, const EventsRead& request, WallTime now) {
  return answer_events(file, request, now);
}
Result<Json> read_file_of(const std::string& file, const WhyRead& request, WallTime now) {
  return answer_why(file, request, now);
}

template <class Request>
Result<Json> ask_anyone(const Request& request, const std::string& file) {
  SystemClock clock;
  if (!file.empty()) return read_file_of(file, request, clock.wall_now());
  const auto daemon = find_api();
  if (daemon.ok()) return api_ask(*daemon, request);
  if (daemon.error().code != Errc::not_found) return daemon.error();
  const std::string kept = kept_file(history_file(), "history.db");
  TRY(check_way(kept));
  auto answer = read_file_of(kept, request, clock.wall_now());
  if (answer.ok()) {
    warn("derate: derated is not running; this is what it has kept in '{}'\n", kept);
    return answer;
  }
  const Errc code = answer.error().code;
  if (code == Errc::invalid_argument || code == Errc::bad_data) return answer;
  return Error{code, fmt::format("{}; {}: start derated (systemctl start derated), or name a "
                                 "history by --file",
                                 daemon.error().message, answer.error().message)};
}

}  // namespace

Result<Json> ask_history(const HistoryRead& request, const std::string& file) {
  return ask_anyone(request, file);
}
Result<Json> ask_history(const SavingsRead& request, const std::string& file) {
  return ask_anyone(request, file);
}
Result<Json> ask_history(const EventsRead& request, const std::string& file) {
  return ask_anyone(request, file);
}
Result<Json> ask_history(const WhyRead& request, const std::string& file) {
  return ask_anyone(request, file);
}

Result<std::string> moment_text(const std::string& option, const std::string& text, WallTime now) {
  const WallTime time = TRY(parse_when(text, now).with(option));
  return utc_text(time);
}

}  // namespace derate::cli
