#include "history_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <type_traits>

#include "api/requests.h"
#include "base/json.h"
#include "base/safe_path.h"
#include "base/when.h"
#include "config/paths.h"
#include "kept_file.h"
#include "service/http/api_call.h"
#include "service/records/bill_query.h"
#include "service/records/history_queries.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// One of those of history_queries.h.
template <class Request>
using ReadHistory = Result<Json>(const std::string&, const Request&, WallTime,
                                 std::span<const GpuId>);

std::string kept_history() { return kept_file(history_file(), "history.db"); }

template <class Request>
Result<Json> read_kept(const std::string& file, const Request& request,
                       ReadHistory<Request>& read) {
  const bool of_usage = std::is_same_v<Request, BillRead>;
  const auto gpus = gpus_of_history(of_usage ? kept_history() : file);
  return read(file, request, SystemClock().wall_now(), gpus.ok() ? *gpus : std::vector<GpuId>());
}

// `kept`: what a daemon has kept, to be read where none runs.
template <class Request>
Result<Json> ask_anyone(const Request& request, const std::string& file, const std::string& kept,
                        ReadHistory<Request>& read) {
  if (!file.empty()) return read_kept(file, request, read);
  const auto daemon = find_api();
  if (daemon.ok()) return api_ask(*daemon, request);
  if (daemon.error().code != Errc::not_found) return daemon.error();
  TRY(check_way(kept));
  auto answer = read_kept(kept, request, read);
  if (::access(kept.c_str(), R_OK) == 0) {
    if (answer.ok())
      warn("derate: derated is not running; this is what it has kept in '{}'\n", kept);
    return answer;
  }
  return Error{answer.ok() ? Errc::io : answer.error().code,
               fmt::format("{}, and there is nothing to read in '{}': start derated (systemctl "
                           "start derated), or name a file by --file",
                           daemon.error().message, kept)};
}

}  // namespace

Result<HistoryAnswer> ask_history(const HistoryRead& request, const std::string& file) {
  return answer_of<HistoryAnswer>(TRY(ask_anyone(request, file, kept_history(), answer_history)));
}
Result<SavingsAnswer> ask_history(const SavingsRead& request, const std::string& file) {
  return answer_of<SavingsAnswer>(TRY(ask_anyone(request, file, kept_history(), answer_savings)));
}
Result<BillAnswer> ask_history(const BillRead& request, const std::string& file) {
  return answer_of<BillAnswer>(
      TRY(ask_anyone(request, file, kept_file(usage_file(), "usage.db"), answer_bill)));
}
Result<EventsAnswer> ask_history(const EventsRead& request, const std::string& file) {
  return answer_of<EventsAnswer>(TRY(ask_anyone(request, file, kept_history(), answer_events)));
}
Result<WhyAnswer> ask_history(const WhyRead& request, const std::string& file) {
  return answer_of<WhyAnswer>(TRY(ask_anyone(request, file, kept_history(), answer_why)));
}

Result<std::string> moment_text(const std::string& option, const std::string& text, WallTime now) {
  const WallTime time = TRY(parse_when(text, now).with(option));
  return utc_text(time);
}

}  // namespace derate::cli
