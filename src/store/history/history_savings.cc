// Writes and reads the hours of what was saved.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "store/history/history_points.h"
#include "store/history/history_store.h"

namespace derate {
namespace {

constexpr HistoryTable kHoursOfGpus{HistoryKind::gpu, kHistoryTierCount - 1};
constexpr HistoryTable kHoursOfTenants{HistoryKind::tenant, kHistoryTierCount - 1};
constexpr std::int64_t kHourSeconds = 3600;

constexpr std::pair<HistoryField, std::int64_t SavingsHour::*> kSavingsColumns[] = {
    {HistoryField::covered_ms, &SavingsHour::covered_ms},
    {HistoryField::energy_mj, &SavingsHour::energy_mj},
    {HistoryField::saved_of_mj, &SavingsHour::saved_of_mj},
    {HistoryField::saved_at_highest_mj, &SavingsHour::saved_at_highest_mj},
    {HistoryField::saved_sd_mj, &SavingsHour::saved_sd_mj},
};

bool is_nothing(const SavingsHour& hour) {
  return hour == SavingsHour{.hour = hour.hour, .key = hour.key};
}

std::int64_t negative(std::int64_t value) {
  return static_cast<std::int64_t>(~static_cast<std::uint64_t>(value) + 1);
}

class SavingsReader {
 public:
  SavingsReader(SQLite::Database& sqlite, SavingsBy by, const SecondRange& hours)
      : by_(by), hours_(hours), points_(sqlite), book_(sqlite) {}

  Result<std::vector<SavingsHour>> read() {
    const bool of_tenants = by_ == SavingsBy::job || by_ == SavingsBy::user;
    walk(kHoursOfGpus);
    if (of_tenants) walk(kHoursOfTenants);
    if (is_full())
      return Error{Errc::invalid_argument,
                   fmt::format("more than {} sums of an hour: allowed is a shorter time",
                               kMostSavingsHours)};
    std::vector<SavingsHour> out;
    for (const auto& [at, sums] : sums_)
      if (!is_nothing(sums)) out.push_back(sums);
    return out;
  }

 private:
  bool is_full() const { return sums_.size() > kMostSavingsHours; }
  std::string name_of(const HistorySeriesKey& key) const {
    switch (by_) {
      case SavingsBy::gpu:
        return key.gpu;
      case SavingsBy::policy:
        return key.policy;
      case SavingsBy::job:
        return key.labels.job;
      case SavingsBy::user:
        return key.labels.user;
    }
    return {};
  }

  // A board that tenants share is nobody's at first, and what a named tenant had of it is his.
  void walk(const HistoryTable& table) {
    const bool tenants = table.kind == HistoryKind::tenant;
    const auto want = [&](std::int64_t series) {
      const HistorySeriesKey* key = is_full() ? nullptr : book_.find(series);
      return key != nullptr && !(tenants && name_of(*key).empty());
    };
    points_.each(table, hours_, want,
                 [&](std::int64_t series, const HistoryChunk& chunk, std::int64_t begin_s,
                     std::int64_t unit_s) {
                   take(name_of(*book_.find(series)), tenants, chunk, begin_s, unit_s);
                 });
  }

  void take(const std::string& name, bool tenant, const HistoryChunk& chunk, std::int64_t begin_s,
            std::int64_t unit_s) {
    each_bit(chunk.slots(), [&](std::size_t slot) {
      const std::int64_t second = begin_s + static_cast<std::int64_t>(slot) * unit_s;
      if (!hours_.has(second)) return;
      const std::int64_t hour = floor_divide(second, kHourSeconds);
      const HistoryPoint point = chunk.point(static_cast<int>(slot));
      add(hour, name, point);
      if (tenant) take_from_nobody(hour, point);
    });
  }

  SavingsHour& sums_of(std::int64_t hour, const std::string& name) {
    const auto [at, fresh] = sums_.try_emplace({hour, name});
    if (fresh) at->second = {.hour = history_time(hour * kHourSeconds), .key = name};
    return at->second;
  }
  void add(std::int64_t hour, const std::string& name, const HistoryPoint& point) {
    SavingsHour& sums = sums_of(hour, name);
    for (const auto& [field, column] : kSavingsColumns)
      sums.*column = folded(HistoryFold::sum, sums.*column, point[field].value_or(0));
  }
  void take_from_nobody(std::int64_t hour, HistoryPoint point) {
    point[HistoryField::covered_ms] = 0;
    for (auto& value : point.values)
      if (value) value = negative(*value);
    add(hour, "", point);
  }

  SavingsBy by_;
  SecondRange hours_;
  PointReader points_;
  SeriesBook book_;
  std::map<std::pair<std::int64_t, std::string>, SavingsHour> sums_;
};

}  // namespace

Result<std::vector<SavingsHour>> read_savings(const std::string& path, SavingsBy by, WallTime from,
                                              WallTime to) {
  // Whole hours, those that begin within.
  const auto hour_from = [](WallTime time) {
    return ceil_divide(second_from(time), kHourSeconds) * kHourSeconds;
  };
  const SecondRange hours{hour_from(from), hour_from(to)};
  return TRY(read_history_file(
      path, [&](SQLite::Database& sqlite) { return SavingsReader(sqlite, by, hours).read(); }));
}

}  // namespace derate
