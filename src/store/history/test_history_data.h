// Points, seconds and files of them, for the tests of the history.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "store/history/history_store.h"

namespace derate {

// 2026-01-01T00:00Z.
inline const WallTime kHistoryBegin{std::chrono::hours(20'454 * 24)};

inline HistorySeriesKey gpu_key(int gpu, const std::string& policy = "assure") {
  return {.kind = HistoryKind::gpu, .gpu = fmt::format("GPU-{}", gpu), .policy = policy};
}
inline HistorySeriesKey tenant_key(int gpu, const std::string& user, const std::string& job = "") {
  HistorySeriesKey out{.kind = HistoryKind::tenant, .gpu = fmt::format("GPU-{}", gpu)};
  out.tenant = "pid:" + user + job;
  out.labels.user = user;
  out.labels.job = job;
  if (!user.empty()) out.labels.pid = 4242;
  return out;
}

inline HistoryPoint energy_point(std::int64_t mj, std::int64_t covered_ms = 1000) {
  HistoryPoint out;
  out[HistoryField::covered_ms] = covered_ms;
  out[HistoryField::energy_mj] = mj;
  return out;
}

// What was added, point by point.
using HistoryTruth = std::map<std::pair<HistorySeriesKey, WallTime>, HistoryPoint>;

inline WallTime step_begin(WallTime time, Duration step) {
  const Duration since = time.time_since_epoch();
  return WallTime{since - ((since % step) + step) % step};
}

// Of the steps that begin in [from, to).
inline HistoryTruth truth_of(const std::vector<HistorySecond>& seconds, Duration step,
                             WallTime from, WallTime to) {
  HistoryTruth out;
  for (const HistorySecond& second : seconds) {
    const WallTime begin = step_begin(second.begin, step);
    if (begin < from || begin >= to) continue;
    for (const HistorySecond::Part& part : second.parts) out[{part.key, begin}].fold(part.point);
  }
  return out;
}

inline HistoryTruth truth_of(const History& history) {
  HistoryTruth out;
  for (const HistorySeries& series : history.series)
    for (const HistoryStep& step : series.steps) {
      CHECK(step.length == history.step);
      CHECK(out.try_emplace({series.key, step.begin}, step.point).second);
    }
  return out;
}

inline std::int64_t energy_of(const HistoryTruth& truth) {
  std::int64_t out = 0;
  for (const auto& [at, point] : truth) out += point[HistoryField::energy_mj].value_or(0);
  return out;
}

// Two GPUs and a tenant of each, for so many seconds from there on, one after the other.
inline std::vector<HistorySecond> some_seconds(WallTime from, int count) {
  std::vector<HistorySecond> out;
  for (int i = 0; i < count; ++i) {
    HistorySecond& second = out.emplace_back();
    second.begin = from + std::chrono::seconds(i);
    for (int gpu = 0; gpu < 2; ++gpu) {
      second.parts.push_back({gpu_key(gpu), energy_point(1000 + i % 97 + gpu)});
      second.parts.push_back({tenant_key(gpu, "alice"), energy_point(500 + i % 89)});
    }
  }
  return out;
}

// In one piece; `ran` grows by a second each.
inline void add_seconds(HistoryStore& store, const std::vector<HistorySecond>& seconds,
                        Duration& ran) {
  ran += std::chrono::seconds(seconds.size());
  const auto done = store.add({.seconds = seconds}, ran);
  CHECK(done.ok());
}

}  // namespace derate
