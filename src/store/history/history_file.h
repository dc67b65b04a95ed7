// Layout of the history's SQLite file, shared by writing and reading: its schema, tables and rows,
// and the row that a time is in.
//
// A row of the tier of seconds has a minute's seconds of all series of a kind, one of the tier of
// minutes an hour's minutes, one of the tier of hours a day's hours: sealed parts
// (history_chunk.h). The newest seconds wait in `recent`, a row each, for their minute's end;
// whatever leaves it goes into all three tiers at once. So each tier has all that the finer ones
// have.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "store/history/history.h"
#include "store/history/history_chunk.h"
#include "store/history/history_store.h"
#include "store/sqlite_file.h"

namespace derate {

extern const SqliteSchema kHistorySchema;
inline constexpr int kHistoryBusyMilliseconds = 200;  // of a thread of its own, and of readers
inline constexpr HistoryKind kHistoryKinds[] = {HistoryKind::gpu, HistoryKind::tenant};

// `unit_s`: the length of a slot, `slots`: of a row.
struct HistoryTier {
  const char* name;
  std::int64_t unit_s;
  int slots;

  std::int64_t row_s() const { return unit_s * slots; }
};
inline constexpr HistoryTier kHistoryTiers[] = {
    {"second", 1, 60}, {"minute", 60, 60}, {"hour", 3600, 24}};
inline constexpr std::size_t kHistoryTierCount = std::size(kHistoryTiers);

// The table of a tier's rows of a kind: the row that begins at `row` x row_s() has the id `row`.
struct HistoryTable {
  HistoryKind kind;
  std::size_t tier;

  std::string name() const;
  const HistoryTier& scale() const { return kHistoryTiers[tier]; }
};

struct HistoryRow {
  std::int64_t row = 0;     // its id
  std::int64_t run_ms = 0;  // when it was last written, by the time of all runs
  std::uint64_t slots = 0;  // bit n: some series has a point there
  std::string bytes;        // sealed
};
std::string seal_row(const HistoryTable& table, const HistoryRow& row, std::string_view parts);
// Views into `row.bytes`. Errors: bad_data.
Result<std::vector<HistoryPart>> open_row(const HistoryTable& table, const HistoryRow& row);

// A second that waits. Its parts have one slot, 0.
struct RecentRow {
  std::int64_t id = 0, begin_s = 0, run_ms = 0;
  std::array<std::string, std::size(kHistoryKinds)> bytes;  // by kind; empty: no series
};
std::string seal_recent(const RecentRow& row, HistoryKind kind, std::string_view parts);
Result<std::vector<HistoryPart>> open_recent(const RecentRow& row, HistoryKind kind);
// Those that a condition is true of, in the order in which they were added.
std::vector<RecentRow> recent_rows(SQLite::Database& sqlite, const std::string& condition);
std::vector<RecentRow> recent_rows(SQLite::Database& sqlite, std::int64_t from_s,
                                   std::int64_t to_s);  // that begin in [from_s, to_s)
std::optional<HistoryRow> find_row(SQLite::Database& sqlite, const HistoryTable& table,
                                   std::int64_t row);

// Of a statement that selects id, run_ms, slots and parts.
HistoryRow row_of(SQLite::Statement& found);
std::vector<HistoryCut> cuts_of(SQLite::Database& sqlite);

// Of the whole numbers below and above.
std::int64_t floor_divide(std::int64_t a, std::int64_t b);
std::int64_t ceil_divide(std::int64_t a, std::int64_t b);
inline std::int64_t whole_second(WallTime time) {
  return std::int64_t{std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count()};
}
inline std::int64_t second_from(WallTime time) {
  return std::int64_t{std::chrono::ceil<std::chrono::seconds>(time).time_since_epoch().count()};
}
// The nearest that there is.
WallTime history_time(std::int64_t unix_s);

// Runs work(SQLite::Database&) on a file that somebody else may be writing, at one moment of it.
// Errors: as history_store.h says of reading.
Result<void> check_history_readable(const std::string& path);
template <class F>
auto read_history_file(const std::string& path, F&& work)
    -> Result<decltype(work(std::declval<SQLite::Database&>()))> {
  TRY(check_history_readable(path));
  return guarded(path, [&] {
    SQLite::Database sqlite(path, SQLite::OPEN_READONLY, kHistoryBusyMilliseconds);
    SQLite::Transaction one_moment(sqlite);
    check_kept(sqlite, kHistorySchema);
    return work(sqlite);
  });
}

// HistoryStore::commanded_policies() of an open file.
std::vector<CommandedPolicy> commanded_in(SQLite::Database& sqlite);

}  // namespace derate
