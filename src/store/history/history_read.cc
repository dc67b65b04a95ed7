// Reads a history's columns: the tier and the step that fit a span of time.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "store/history/history_points.h"
#include "store/history/history_store.h"

namespace derate {
namespace {

constexpr std::int64_t kStepsSeconds[] = {1,   2,   5,    10,   15,   30,    60,    120,   300,
                                          600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400};
constexpr std::int64_t kDaySeconds = 86400, kMostStepDays = 1'000'000;

// The next longer one: after a day 2, 5, 10, 20, 50 ... days.
std::int64_t longer_step(std::int64_t step_s) {
  const auto* next = std::upper_bound(std::begin(kStepsSeconds), std::end(kStepsSeconds), step_s);
  if (next != std::end(kStepsSeconds)) return *next;
  std::int64_t days = step_s / kDaySeconds, tens = 1;
  for (; days >= 10; days /= 10) tens *= 10;
  return kDaySeconds * tens * (days == 1 ? 2 : days == 2 ? 5 : 10);
}

// The shortest from there on of which so many are enough.
std::int64_t step_for(const SecondRange& time, std::int64_t shortest_s, std::size_t most) {
  std::int64_t step_s = shortest_s;
  const auto enough = [&] {
    const SecondRange steps = time.steps(step_s);
    return static_cast<std::size_t>(steps.to - steps.from) <= most;
  };
  while (!enough() && step_s < kMostStepDays * kDaySeconds) step_s = longer_step(step_s);
  return step_s;
}

// The steps of one series as they come, mostly one after the other.
class StepSums {
 public:
  // `made`: how many steps there are, of all series.
  StepSums(std::int64_t step_s, std::size_t& made) : step_s_(step_s), made_(made) {}

  void fold(const HistoryChunk& chunk, std::int64_t begin_s, std::int64_t unit_s,
            const SecondRange& time) {
    std::array<WallTime, HistoryChunk::kMostSlots> step{};
    std::uint64_t within = 0;
    each_bit(chunk.slots(), [&](std::size_t slot) {
      const std::int64_t second = begin_s + static_cast<std::int64_t>(slot) * unit_s;
      if (!time.has(second)) return;
      within |= std::uint64_t{1} << slot;
      step[slot] = history_time(floor_divide(second, step_s_) * step_s_);
      make(step[slot]);
    });
    if (within == 0) return;
    std::array<HistoryPoint*, HistoryChunk::kMostSlots> to{};
    auto at = place(step[static_cast<std::size_t>(std::countr_zero(within))]);
    each_bit(within, [&](std::size_t slot) {
      while (at->begin < step[slot]) ++at;
      to[slot] = &at->point;
    });
    chunk.each_column([&](std::size_t field, std::uint64_t slots, const auto& values) {
      const HistoryFold how = history_columns()[field].fold;
      each_bit(slots & within, [&](std::size_t slot) {
        auto& sum = to[slot]->values[field];
        sum = sum ? folded(how, *sum, values[slot]) : values[slot];
      });
    });
  }

  std::vector<HistoryStep> steps() && { return std::move(steps_); }

 private:
  std::vector<HistoryStep>::iterator place(WallTime begin) {
    return std::lower_bound(
        steps_.begin(), steps_.end(), begin,
        [](const HistoryStep& step, WallTime wanted) { return step.begin < wanted; });
  }
  void make(WallTime begin) {
    const HistoryStep fresh{begin, std::chrono::seconds(step_s_), {}};
    const auto at = steps_.empty() || steps_.back().begin < begin ? steps_.end() : place(begin);
    if (at != steps_.end() && at->begin == begin) return;
    steps_.insert(at, fresh);
    ++made_;
  }

  std::int64_t step_s_;
  std::size_t& made_;
  std::vector<HistoryStep> steps_;  // ascending
};

class HistoryReader {
 public:
  HistoryReader(SQLite::Database& sqlite, const HistoryQuery& query)
      : sqlite_(sqlite),
        query_(query),
        gpus_(query.gpus.begin(), query.gpus.end()),
        points_(sqlite),
        book_(sqlite) {}

  Result<History> read() {
    History out;
    const auto kept = extent();
    const SecondRange asked{whole_second(query_.from), second_from(query_.to)};
    SecondRange time{};
    if (kept) {
      out.first = history_time(kept->from);
      out.last = history_time(kept->to);
      time = {std::max(asked.from, kept->from), std::min(asked.to, kept->to)};
    }
    const std::int64_t step_s = time.empty() ? 1 : choose_step(time);
    out.step = std::chrono::seconds(step_s);
    if (!time.empty()) read_series(time.widened(step_s), step_s, out);
    if (made_ > query_.most_steps)
      return Error{Errc::invalid_argument,
                   fmt::format("more than {} points in all: allowed is a shorter time, fewer GPUs, "
                               "or longer steps",
                               query_.most_steps)};
    out.cuts = cuts_of(sqlite_);
    out.broken_rows = points_.broken();
    return out;
  }

 private:
  bool wanted(HistoryKind kind) const { return !query_.kind || *query_.kind == kind; }

  // The first or the last slot of a table, as begin and end.
  std::optional<SecondRange> outermost(const HistoryTable& table, bool last) {
    SQLite::Statement found(sqlite_, fmt::format("SELECT id, slots FROM {} ORDER BY id {} LIMIT 1",
                                                 table.name(), last ? "DESC" : ""));
    if (!found.executeStep()) return std::nullopt;
    const auto slots = static_cast<std::uint64_t>(found.getColumn(1).getInt64());
    const int slot = slots == 0 ? 0 : last ? 63 - std::countl_zero(slots) : std::countr_zero(slots);
    const HistoryTier& scale = table.scale();
    const std::int64_t begin_s =
        found.getColumn(0).getInt64() * scale.row_s() + slot * scale.unit_s;
    return SecondRange{begin_s, begin_s + scale.unit_s};
  }

  // A coarse tier's first slot begins before what it has; a finer one tells from when on.
  std::optional<SecondRange> extent() {
    std::optional<SecondRange> out;
    const auto join = [&](const SecondRange& more) {
      out = out ? SecondRange{std::min(out->from, more.from), std::max(out->to, more.to)} : more;
    };
    for (const HistoryKind kind : kHistoryKinds) {
      std::optional<SecondRange> first, last;
      for (std::size_t tier = kHistoryTierCount; tier-- > 0;) {
        const auto its_first = outermost({kind, tier}, false);
        const auto its_last = outermost({kind, tier}, true);
        if (its_first && (!first || first->has(its_first->from))) first = its_first;
        if (its_last && (!last || last->has(its_last->from))) last = its_last;
      }
      if (first && last) join({first->from, last->to});
    }
    SQLite::Statement recent(
        sqlite_, "SELECT min(begin_unix_seconds), max(begin_unix_seconds) + 1 FROM recent");
    if (recent.executeStep() && !recent.isColumnNull(0))
      join({recent.getColumn(0).getInt64(), recent.getColumn(1).getInt64()});
    return out;
  }

  std::int64_t choose_step(const SecondRange& time) {
    std::int64_t step_s = step_for(time, 1, query_.most_points);
    for (std::size_t tier = 0; tier + 1 < kHistoryTierCount; ++tier) {
      const std::int64_t coarser_s = kHistoryTiers[tier + 1].unit_s;
      if (step_s < coarser_s && !reaches(tier, time.widened(step_s)))
        step_s = step_for(time, coarser_s, query_.most_points);
    }
    return step_s;
  }

  // Whether a tier has a row for each slot of the next coarser one.
  bool reaches(std::size_t tier, const SecondRange& time) {
    for (const HistoryKind kind : kHistoryKinds) {
      const HistoryTable fine{kind, tier}, coarse{kind, tier + 1};
      if (!wanted(kind)) continue;
      const std::int64_t row_s = fine.scale().row_s();
      std::set<std::int64_t> there;
      SQLite::Statement rows(
          sqlite_, fmt::format("SELECT id FROM {} WHERE id >= ? AND id < ?", fine.name()));
      const SecondRange fine_rows = time.steps(row_s);
      RowBinder{rows}.all(fine_rows.from, fine_rows.to);
      while (rows.executeStep()) there.insert(rows.getColumn(0).getInt64());
      if (!has_each_slot(coarse, fine_rows, there)) return false;
    }
    return true;
  }

  bool has_each_slot(const HistoryTable& coarse, const SecondRange& among,
                     const std::set<std::int64_t>& there) {
    const std::int64_t slots = coarse.scale().slots;
    const SecondRange rows = among.steps(slots);
    SQLite::Statement found(
        sqlite_, fmt::format("SELECT id, slots FROM {} WHERE id >= ? AND id < ?", coarse.name()));
    RowBinder{found}.all(rows.from, rows.to);
    while (found.executeStep()) {
      const std::int64_t first = found.getColumn(0).getInt64() * slots;
      auto left = static_cast<std::uint64_t>(found.getColumn(1).getInt64());
      for (; left != 0; left &= left - 1) {
        const std::int64_t slot = first + std::countr_zero(left);
        if (among.has(slot) && !there.contains(slot)) return false;
      }
    }
    return true;
  }

  void read_series(const SecondRange& time, std::int64_t step_s, History& out) {
    std::size_t tier = 0;
    while (tier + 1 < kHistoryTierCount && kHistoryTiers[tier + 1].unit_s <= step_s) ++tier;
    std::map<std::int64_t, StepSums> sums;
    const auto want = [&](std::int64_t series) {
      const HistorySeriesKey* key = made_ > query_.most_steps ? nullptr : book_.find(series);
      return key != nullptr && (gpus_.empty() || gpus_.contains(key->gpu));
    };
    for (const HistoryKind kind : kHistoryKinds) {
      if (!wanted(kind)) continue;
      points_.each({kind, tier}, time, want,
                   [&](std::int64_t series, const HistoryChunk& chunk, std::int64_t begin_s,
                       std::int64_t unit_s) {
                     sums.try_emplace(series, step_s, made_)
                         .first->second.fold(chunk, begin_s, unit_s, time);
                   });
    }
    for (auto& [series, its] : sums) {
      auto steps = std::move(its).steps();
      if (!steps.empty()) out.series.push_back({*book_.find(series), std::move(steps)});
    }
    std::sort(out.series.begin(), out.series.end(),
              [](const HistorySeries& a, const HistorySeries& b) { return a.key < b.key; });
  }

  SQLite::Database& sqlite_;
  const HistoryQuery& query_;
  std::set<std::string> gpus_;
  PointReader points_;
  SeriesBook book_;
  std::size_t made_ = 0;  // steps
};

}  // namespace

Result<History> read_history(const std::string& path, const HistoryQuery& query) {
  return TRY(read_history_file(
      path, [&](SQLite::Database& sqlite) { return HistoryReader(sqlite, query).read(); }));
}

}  // namespace derate
