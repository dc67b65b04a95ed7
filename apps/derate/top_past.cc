#include "top_past.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/requests.h"
#include "base/json.h"
#include "config/paths.h"
#include "service/http/api_call.h"
#include "top_read.h"

namespace derate::cli {
namespace {

std::optional<double> value_at(const NumberColumn& column, std::size_t i) {
  return column && i < column->size() ? (*column)[i] : std::nullopt;
}

}  // namespace

std::map<std::string, std::vector<TopReading>> past_readings(const HistoryAnswer& answer,
                                                             Instant now, WallTime wall_now) {
  // A second of the day begins within one of the charts: it belongs to the one that has most of it.
  const Instant zero = now - std::chrono::duration_cast<Duration>(wall_now.time_since_epoch()) +
                       std::chrono::milliseconds(500);
  constexpr double kLongestStep = 60;
  constexpr std::int64_t kOldest = 3600;  // seconds: no chart has more
  const Duration step = from_seconds(std::clamp(answer.step_seconds, 1.0, kLongestStep));
  const std::int64_t unix_now =
      std::chrono::floor<std::chrono::seconds>(wall_now.time_since_epoch()).count();
  std::map<std::string, std::vector<TopReading>> out;
  for (const HistorySeriesView& series : answer.series) {
    if (series.kind != "gpu") continue;
    for (std::size_t i = 0; i < series.begin_unix_seconds.size(); ++i) {
      const std::int64_t begin = series.begin_unix_seconds[i];
      const auto watts = value_at(series.power_watts, i), clock = value_at(series.sm_clock_mhz, i);
      if ((!watts && !clock) || begin < unix_now - kOldest || begin > unix_now) continue;
      out[series.gpu].push_back({zero + std::chrono::seconds(begin), step, watts, clock});
    }
  }
  constexpr Duration kNotYetKept = std::chrono::seconds(3);
  for (auto& [uuid, readings] : out) {  // of several policies, one after the other
    std::stable_sort(readings.begin(), readings.end(),
                     [](const TopReading& a, const TopReading& b) { return a.time < b.time; });
    TopReading& last = readings.back();
    if (now - last.time <= kNotYetKept) last.held = std::max(last.held, now - last.time);
  }
  return out;
}

PastMinute::PastMinute(std::string gpus)
    : request_{.from = fmt::format("now-{}s", TopHistory::kSeconds + 1), .gpus = std::move(gpus)},
      tries_left_(3) {}

std::optional<HistoryAnswer> PastMinute::look(Duration patience) {
  if (tries_left_ == 0) return std::nullopt;
  const int left = std::exchange(tries_left_, 0) - 1;
  for (const std::string& socket : api_sockets()) {
    const auto fields = api_ask(socket, request_, patience);
    if (fields.ok()) {
      auto answer = answer_of<HistoryAnswer>(*fields);
      return answer.ok() ? std::optional(std::move(*answer)) : std::nullopt;
    }
    const Errc code = fields.error().code;
    if (code == Errc::not_found || code == Errc::no_permission) continue;  // nobody, or a stranger
    if (code == Errc::gpu_stuck || code == Errc::busy) tries_left_ = left;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace derate::cli
