// Walking over the points of a history: of one tier, and of the seconds that wait for their minute.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "store/history/history_file.h"
#include "store/sqlite_rows.h"

namespace derate {

// [from, to), in seconds since 1970.
struct SecondRange {
  std::int64_t from = 0, to = 0;

  bool empty() const { return from >= to; }
  bool has(std::int64_t second) const { return second >= from && second < to; }
  // The numbers of the steps of that length that it touches.
  SecondRange steps(std::int64_t step_s) const {
    return {floor_divide(from, step_s), ceil_divide(to, step_s)};
  }
  SecondRange widened(std::int64_t step_s) const {
    const SecondRange whole = steps(step_s);
    return {whole.from * step_s, whole.to * step_s};
  }
};

// Whose a series is, looked up when its first point comes.
class SeriesBook {
 public:
  explicit SeriesBook(SQLite::Database& sqlite)
      : find_(sqlite, fmt::format("SELECT kind, gpu, policy, tenant, {} FROM series WHERE id = ?",
                                  kLabelColumns)) {}

  // Null: nobody's any more.
  const HistorySeriesKey* find(std::int64_t id) {
    const auto [at, fresh] = known_.try_emplace(id);
    if (fresh) at->second = read(id);
    return at->second ? &*at->second : nullptr;
  }

 private:
  std::optional<HistorySeriesKey> read(std::int64_t id) {
    find_.reset();
    find_.bind(1, id);
    if (!find_.executeStep()) return std::nullopt;
    HistorySeriesKey out;
    int kind = 0;
    RowReader{find_}.all(kind, out.gpu, out.policy, out.tenant, out.labels);
    out.kind = kind == 0 ? HistoryKind::gpu : HistoryKind::tenant;
    return out;
  }

  SQLite::Statement find_;
  std::map<std::int64_t, std::optional<HistorySeriesKey>> known_;
};

class PointReader {
 public:
  explicit PointReader(SQLite::Database& sqlite) : sqlite_(sqlite) {}

  // Calls take(series, chunk, begin of its slot 0, length of a slot) of what is in `table` and
  // touches `time`, and then of what waits, where want(series) is true. Slots may lie outside.
  template <class Want, class Take>
  void each(const HistoryTable& table, const SecondRange& time, Want&& want, Take&& take) {
    const HistoryTier& scale = table.scale();
    const SecondRange rows = time.steps(scale.row_s());
    SQLite::Statement found(sqlite_, fmt::format("SELECT id, run_ms, slots, parts FROM {} WHERE "
                                                 "id >= ? AND id < ? ORDER BY id",
                                                 table.name()));
    RowBinder{found}.all(rows.from, rows.to);
    for (std::int64_t next = rows.from; found.executeStep();) {
      const HistoryRow row = row_of(found);
      if (row.row < next) {  // as only a damaged file has it
        ++broken_;
        continue;
      }
      next = row.row + 1;
      each_part(open_row(table, row), scale.slots, want,
                [&](std::int64_t series, const HistoryChunk& chunk) {
                  take(series, chunk, row.row * scale.row_s(), scale.unit_s);
                });
    }
    for (const RecentRow& row : recent_rows(sqlite_, time.from, time.to))
      each_part(open_recent(row, table.kind), 1, want,
                [&](std::int64_t series, const HistoryChunk& chunk) {
                  take(series, chunk, row.begin_s, 1);
                });
  }

  // Rows that could not be read.
  std::size_t broken() const { return broken_; }

 private:
  template <class Want, class Take>
  void each_part(const Result<std::vector<HistoryPart>>& parts, int slots, Want&& want,
                 Take&& take) {
    if (!parts.ok()) {
      ++broken_;
      return;
    }
    for (const HistoryPart& part : *parts) {
      if (!want(part.series)) continue;
      if (chunk_.decode(part.chunk, slots).ok())
        take(part.series, chunk_);
      else
        ++broken_;
    }
  }

  SQLite::Database& sqlite_;
  HistoryChunk chunk_;
  std::size_t broken_ = 0;
};

}  // namespace derate
