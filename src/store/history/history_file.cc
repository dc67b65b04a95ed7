#include "store/history/history_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "store/sqlite_rows.h"

namespace derate {
namespace {

// Ids of events and of series are never used again.
constexpr const char* kHistoryMigrations[] = {
    R"(CREATE TABLE run (total_ms INTEGER NOT NULL, swept_ms INTEGER NOT NULL);
       INSERT INTO run VALUES (0, 0);
       CREATE TABLE series (
         id INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, gpu TEXT NOT NULL,
         policy TEXT NOT NULL, tenant TEXT NOT NULL, pid INTEGER NOT NULL, process TEXT NOT NULL,
         user TEXT NOT NULL, container TEXT NOT NULL, name_space TEXT NOT NULL, pod TEXT NOT NULL,
         job TEXT NOT NULL, instance TEXT NOT NULL,
         UNIQUE (gpu, kind, policy, tenant, pid, process, user, container, name_space, pod, job,
                 instance));
       CREATE TABLE recent (
         id INTEGER PRIMARY KEY, begin_unix_seconds INTEGER NOT NULL, run_ms INTEGER NOT NULL,
         gpu BLOB NOT NULL, tenant BLOB NOT NULL);
       CREATE TABLE gpu_second (
         id INTEGER PRIMARY KEY, run_ms INTEGER NOT NULL, slots INTEGER NOT NULL,
         parts BLOB NOT NULL);
       CREATE TABLE gpu_minute (
         id INTEGER PRIMARY KEY, run_ms INTEGER NOT NULL, slots INTEGER NOT NULL,
         parts BLOB NOT NULL);
       CREATE TABLE gpu_hour (
         id INTEGER PRIMARY KEY, run_ms INTEGER NOT NULL, slots INTEGER NOT NULL,
         parts BLOB NOT NULL);
       CREATE TABLE tenant_second (
         id INTEGER PRIMARY KEY, run_ms INTEGER NOT NULL, slots INTEGER NOT NULL,
         parts BLOB NOT NULL);
       CREATE TABLE tenant_minute (
         id INTEGER PRIMARY KEY, run_ms INTEGER NOT NULL, slots INTEGER NOT NULL,
         parts BLOB NOT NULL);
       CREATE TABLE tenant_hour (
         id INTEGER PRIMARY KEY, run_ms INTEGER NOT NULL, slots INTEGER NOT NULL,
         parts BLOB NOT NULL);
       CREATE INDEX gpu_second_by_age ON gpu_second (run_ms);
       CREATE INDEX gpu_minute_by_age ON gpu_minute (run_ms);
       CREATE INDEX gpu_hour_by_age ON gpu_hour (run_ms);
       CREATE INDEX tenant_second_by_age ON tenant_second (run_ms);
       CREATE INDEX tenant_minute_by_age ON tenant_minute (run_ms);
       CREATE INDEX tenant_hour_by_age ON tenant_hour (run_ms);
       CREATE TABLE cut (
         name TEXT PRIMARY KEY, until_unix_seconds INTEGER NOT NULL, run_ms INTEGER NOT NULL);
       CREATE TABLE event (
         id INTEGER PRIMARY KEY AUTOINCREMENT, run_ms INTEGER NOT NULL, time INTEGER NOT NULL,
         kind TEXT NOT NULL, gpu TEXT NOT NULL, gpu_index INTEGER, message TEXT NOT NULL,
         fields TEXT NOT NULL);
       CREATE TABLE decision (
         id INTEGER PRIMARY KEY, run_ms INTEGER NOT NULL, gpu TEXT NOT NULL,
         time INTEGER NOT NULL, policy TEXT NOT NULL, source TEXT NOT NULL, who TEXT NOT NULL,
         rule TEXT NOT NULL, reason TEXT NOT NULL, asked_clock_mhz REAL, sm_clock_mhz REAL,
         set_power_limit_watts REAL, expected_performance_ratio REAL,
         promised_performance_ratio REAL, bound TEXT NOT NULL);
       CREATE INDEX decision_by_gpu ON decision (gpu);
       CREATE INDEX event_by_time ON event (time);)",
};
constexpr const char* kHistoryReads[] = {
    "SELECT total_ms, swept_ms FROM run",
    ("SELECT id, kind, gpu, policy, tenant, pid, process, user, container, name_space, pod, job, "
     "instance FROM series"),
    "SELECT id, begin_unix_seconds, run_ms, gpu, tenant FROM recent",
    "SELECT id, run_ms, slots, parts FROM gpu_second",
    "SELECT id, run_ms, slots, parts FROM gpu_minute",
    "SELECT id, run_ms, slots, parts FROM gpu_hour",
    "SELECT id, run_ms, slots, parts FROM tenant_second",
    "SELECT id, run_ms, slots, parts FROM tenant_minute",
    "SELECT id, run_ms, slots, parts FROM tenant_hour",
    "SELECT name, until_unix_seconds, run_ms FROM cut",
    "SELECT id, run_ms, time, kind, gpu, gpu_index, message, fields FROM event",
    ("SELECT id, run_ms, gpu, time, policy, source, who, rule, reason, asked_clock_mhz, "
     "sm_clock_mhz, set_power_limit_watts, expected_performance_ratio, "
     "promised_performance_ratio, bound FROM decision"),
};

const char* kind_name(HistoryKind kind) { return kind == HistoryKind::gpu ? "gpu" : "tenant"; }

Result<std::vector<HistoryPart>> parts_of(std::optional<std::string_view> row) {
  if (!row) return Error{Errc::bad_data, "a row is not what was written"};
  return split_parts(*row);
}

// That no row passes for one of another table.
std::int64_t table_number(const HistoryTable& table) {
  return static_cast<std::int64_t>(table.tier) * 2 + (table.kind == HistoryKind::gpu ? 0 : 1);
}
constexpr std::int64_t kRecentNumber = 100;

}  // namespace

const SqliteSchema kHistorySchema{.application_id = 0x64726873,  // "drhs"
                                  .what = "the history of GPUs",
                                  .migrations = kHistoryMigrations,
                                  .reads = kHistoryReads,
                                  .shrinks = true};

std::string HistoryTable::name() const {
  return fmt::format("{}_{}", kind_name(kind), scale().name);
}

std::string seal_row(const HistoryTable& table, const HistoryRow& row, std::string_view parts) {
  return sealed({table_number(table), row.row, row.run_ms, static_cast<std::int64_t>(row.slots)},
                parts);
}
Result<std::vector<HistoryPart>> open_row(const HistoryTable& table, const HistoryRow& row) {
  return parts_of(unsealed(
      {table_number(table), row.row, row.run_ms, static_cast<std::int64_t>(row.slots)}, row.bytes));
}

std::string seal_recent(const RecentRow& row, HistoryKind kind, std::string_view parts) {
  return sealed({kRecentNumber, row.begin_s, row.run_ms, static_cast<std::int64_t>(kind)}, parts);
}
Result<std::vector<HistoryPart>> open_recent(const RecentRow& row, HistoryKind kind) {
  const std::string& bytes = row.bytes[static_cast<std::size_t>(kind)];
  if (bytes.empty()) return std::vector<HistoryPart>{};
  return parts_of(
      unsealed({kRecentNumber, row.begin_s, row.run_ms, static_cast<std::int64_t>(kind)}, bytes));
}

std::vector<RecentRow> recent_rows(SQLite::Database& sqlite, const std::string& condition) {
  SQLite::Statement row(
      sqlite, "SELECT id, begin_unix_seconds, run_ms, gpu, tenant FROM recent WHERE " + condition +
                  " ORDER BY id");
  std::vector<RecentRow> out;
  while (row.executeStep()) {
    RecentRow each;
    RowReader{row}.all(each.id, each.begin_s, each.run_ms, each.bytes[0], each.bytes[1]);
    // Only a damaged file has one twice.
    if (out.empty() || each.id > out.back().id) out.push_back(std::move(each));
  }
  return out;
}

std::vector<RecentRow> recent_rows(SQLite::Database& sqlite, std::int64_t from_s,
                                   std::int64_t to_s) {
  return recent_rows(
      sqlite, fmt::format("begin_unix_seconds >= {} AND begin_unix_seconds < {}", from_s, to_s));
}

HistoryRow row_of(SQLite::Statement& found) {
  HistoryRow out;
  std::int64_t slots = 0;
  RowReader{found}.all(out.row, out.run_ms, slots, out.bytes);
  out.slots = static_cast<std::uint64_t>(slots);
  return out;
}

std::optional<HistoryRow> find_row(SQLite::Database& sqlite, const HistoryTable& table,
                                   std::int64_t row) {
  SQLite::Statement found(
      sqlite, fmt::format("SELECT id, run_ms, slots, parts FROM {} WHERE id = ?", table.name()));
  found.bind(1, row);
  if (!found.executeStep()) return std::nullopt;
  return row_of(found);
}

std::vector<HistoryCut> cuts_of(SQLite::Database& sqlite) {
  std::vector<HistoryCut> out;
  SQLite::Statement found(sqlite, "SELECT until_unix_seconds FROM cut WHERE name = ?");
  for (const HistoryKind kind : kHistoryKinds)
    for (std::size_t tier = 0; tier < kHistoryTierCount; ++tier) {
      found.reset();
      found.bind(1, HistoryTable{kind, tier}.name());
      if (!found.executeStep()) continue;
      out.push_back({kind, std::chrono::seconds(kHistoryTiers[tier].unit_s),
                     history_time(found.getColumn(0).getInt64())});
    }
  return out;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}
std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return -floor_divide(-a, b); }

WallTime history_time(std::int64_t unix_s) {
  constexpr std::int64_t kMost =
      std::chrono::floor<std::chrono::seconds>(WallTime::max()).time_since_epoch().count();
  return WallTime{std::chrono::seconds(std::clamp(unix_s, -kMost, kMost))};
}

Result<void> check_history_readable(const std::string& path) {
  if (is_missing(path))
    return Error{Errc::not_found, fmt::format("'{}': no history is kept yet", path)};
  if (::access(path.c_str(), R_OK) != 0)
    return Error{Errc::no_permission, fmt::format("'{}': may not be read", path)};
  return {};
}

}  // namespace derate
