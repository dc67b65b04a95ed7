// Drops points, events and decisions that are older than the history's bounds.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "store/history/history_writer.h"
#include "store/sqlite_rows.h"

namespace derate {
namespace {

// Of each table in one tidying: it must not keep the file, and its log, for long.
constexpr int kMostDropped = 500;
constexpr std::int64_t kMostPagesShrunk = 1024;
// Pages that are free are used again: only where there are more than these does the file shrink.
constexpr std::int64_t kFreePagesKept = 1024;
constexpr int kOldDecisionsKept = 10;
constexpr std::size_t kMostUnsorted = 10'000;
constexpr std::int64_t kSweepMs = std::int64_t{24} * 3600 * 1000;

std::int64_t age_ms(Duration age) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(age).count();
}

Duration kept_for(const HistoryBounds& bounds, std::size_t tier) {
  const Duration all[kHistoryTierCount] = {bounds.seconds_for, bounds.minutes_for,
                                           bounds.hours_for};
  return all[tier];
}

// In the order in which they are dropped for the size of the file.
constexpr HistoryTable kDropOrder[] = {{HistoryKind::tenant, 0}, {HistoryKind::tenant, 1},
                                       {HistoryKind::gpu, 0},    {HistoryKind::gpu, 1},
                                       {HistoryKind::tenant, 2}, {HistoryKind::gpu, 2}};

}  // namespace

HistoryStore::Tidied HistoryWriter::tidy(const HistoryBounds& bounds, std::int64_t run_ms) {
  set_run_ms(run_ms);
  drop_old_points(bounds, run_ms);
  drop_events(bounds, run_ms);
  drop_decisions(bounds, run_ms);
  const bool sweep = drop_for_size(bounds, run_ms);
  if (sweep || run_ms - number("SELECT max(swept_ms) FROM run") >= kSweepMs) sweep_series(run_ms);
  shrink(bounds.most_bytes);
  HistoryStore::Tidied out;
  out.bytes = number("PRAGMA page_count") * number("PRAGMA page_size");
  out.cuts = cuts_of(sqlite_);
  for (const HistoryCut& cut : out.cuts)
    if (cut.kind == HistoryKind::tenant && cut.length == std::chrono::seconds(1))
      out.tenants_seconds_from = cut.from;
  return out;
}

void HistoryWriter::drop_old_points(const HistoryBounds& bounds, std::int64_t run_ms) {
  for (const HistoryTable& table : kDropOrder) {
    const std::int64_t before_ms = run_ms - age_ms(kept_for(bounds, table.tier));
    sqlite_.exec(
        fmt::format("DELETE FROM {0} WHERE id IN (SELECT id FROM {0} WHERE run_ms < {1} "
                    "ORDER BY run_ms LIMIT {2})",
                    table.name(), before_ms, kMostDropped));
    // What would be old by now was not lost to the size.
    sqlite_.exec(
        fmt::format("DELETE FROM cut WHERE name = '{}' AND run_ms < {}", table.name(), before_ms));
  }
}

// Their ids ascend with their age: it is enough to look at the first.
void HistoryWriter::drop_events(const HistoryBounds& bounds, std::int64_t run_ms) {
  sqlite_.exec(
      fmt::format("DELETE FROM event WHERE id IN (SELECT id FROM (SELECT id, run_ms FROM "
                  "event ORDER BY id LIMIT {}) WHERE run_ms < {})",
                  kMostDropped, run_ms - age_ms(bounds.events_for)));
  const std::int64_t many = number("SELECT count(*) FROM event") - bounds.most_events;
  if (many > 0) drop_first("event", many);
}

// Of each GPU some that are old are kept: the one before the others was in force at their
// beginning.
void HistoryWriter::drop_decisions(const HistoryBounds& bounds, std::int64_t run_ms) {
  std::vector<std::string> gpus;
  SQLite::Statement next(sqlite_, "SELECT gpu FROM decision WHERE gpu > ? ORDER BY gpu LIMIT 1");
  for (std::string last;; last = gpus.back()) {
    next.reset();
    next.bind(1, last);
    if (!next.executeStep()) break;
    gpus.push_back(next.getColumn(0).getString());
  }
  SQLite::Statement old(
      sqlite_, fmt::format("DELETE FROM decision WHERE id IN (SELECT id FROM (SELECT id, run_ms "
                           "FROM decision WHERE gpu = ? ORDER BY id LIMIT {}) WHERE run_ms < {} "
                           "ORDER BY id DESC LIMIT -1 OFFSET {})",
                           kMostDropped, run_ms - age_ms(bounds.decisions_for), kOldDecisionsKept));
  SQLite::Statement many(
      sqlite_, fmt::format("DELETE FROM decision WHERE gpu = ?1 AND id <= (SELECT id FROM decision "
                           "WHERE gpu = ?1 ORDER BY id DESC LIMIT 1 OFFSET {})",
                           bounds.most_decisions /
                               std::max<std::int64_t>(1, static_cast<std::int64_t>(gpus.size()))));
  for (const std::string& gpu : gpus)
    for (SQLite::Statement* each : {&old, &many}) {
      each->reset();
      each->bind(1, gpu);
      each->exec();
    }
}

void HistoryWriter::drop_first(const char* table, std::int64_t many) {
  sqlite_.exec(fmt::format("DELETE FROM {0} WHERE id IN (SELECT id FROM {0} ORDER BY id LIMIT {1})",
                           table, many));
}

// True where series may have lost their last point.
bool HistoryWriter::drop_for_size(const HistoryBounds& bounds, std::int64_t run_ms) {
  const std::int64_t page = number("PRAGMA page_size");
  const auto used = [&] {
    return (number("PRAGMA page_count") - number("PRAGMA freelist_count")) * page;
  };
  bool of_hours = false;
  for (const HistoryTable& table : kDropOrder) {
    int dropped = 0;
    for (int more = 1; more > 0 && dropped < kMostDropped; dropped += more) {
      const std::int64_t over = used() - bounds.most_bytes;
      if (over <= 0) return of_hours;
      more = drop_oldest(table, over, run_ms);
      of_hours = of_hours || (more > 0 && table.tier + 1 == kHistoryTierCount);
    }
    if (dropped >= kMostDropped) return of_hours;  // goes on with the next tidying
  }
  if (used() <= bounds.most_bytes) return of_hours;
  drop_first("decision", kMostDropped);
  drop_first("event", kMostDropped);
  return true;
}

// As many rows as have so many bytes.
int HistoryWriter::drop_oldest(const HistoryTable& table, std::int64_t bytes, std::int64_t run_ms) {
  std::vector<std::int64_t> rows;
  SQLite::Statement oldest(
      sqlite_, fmt::format("SELECT id, length(parts) FROM {} ORDER BY run_ms, id LIMIT {}",
                           table.name(), kMostDropped));
  while (bytes > 0 && oldest.executeStep()) {
    rows.push_back(oldest.getColumn(0).getInt64());
    bytes -= oldest.getColumn(1).getInt64();
  }
  oldest.reset();
  if (rows.empty()) return 0;
  SQLite::Statement drop(sqlite_, fmt::format("DELETE FROM {} WHERE id = ?", table.name()));
  for (const std::int64_t row : rows) {
    drop.reset();
    drop.bind(1, row);
    drop.exec();
  }
  const std::int64_t first =
      number(fmt::format("SELECT ifnull(min(id), {}) FROM {}", rows.back() + 1, table.name()));
  execute(sqlite_, "INSERT OR REPLACE INTO cut VALUES (?, ?, ?)", table.name(),
          first * table.scale().row_s(), run_ms);
  return static_cast<int>(rows.size());
}

// Of tenants that are gone nothing is left some time but their names. The tier of hours has every
// series of the finer ones.
void HistoryWriter::sweep_series(std::int64_t run_ms) {
  std::vector<std::int64_t> used;  // ascending up to `sorted`
  std::size_t sorted = 0;
  const auto sort = [&] {
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    sorted = used.size();
  };
  const auto note = [&](const Result<std::vector<HistoryPart>>& parts) {
    if (!parts.ok()) return;
    for (const HistoryPart& part : *parts) used.push_back(part.series);
    if (used.size() > 2 * sorted + kMostUnsorted) sort();
  };
  for (const HistoryKind kind : kHistoryKinds) {
    const HistoryTable hours{kind, kHistoryTierCount - 1};
    SQLite::Statement row(sqlite_,
                          fmt::format("SELECT id, run_ms, slots, parts FROM {}", hours.name()));
    while (row.executeStep()) {
      const HistoryRow its = row_of(row);
      note(open_row(hours, its));
    }
    for (const RecentRow& each : recent_rows(sqlite_, "true")) note(open_recent(each, kind));
  }
  sort();
  std::vector<std::int64_t> unused;
  SQLite::Statement series(sqlite_, "SELECT id FROM series");
  while (series.executeStep())
    if (!std::binary_search(used.begin(), used.end(), series.getColumn(0).getInt64()))
      unused.push_back(series.getColumn(0).getInt64());
  series.reset();
  SQLite::Statement drop(sqlite_, "DELETE FROM series WHERE id = ?");
  for (const std::int64_t id : unused) {
    drop.reset();
    drop.bind(1, id);
    drop.exec();
  }
  series_.clear();
  sqlite_.exec(fmt::format("UPDATE run SET swept_ms = {}", run_ms));
}

void HistoryWriter::shrink(std::int64_t most_bytes) {
  const std::int64_t pages = number("PRAGMA page_count"), page = number("PRAGMA page_size");
  const std::int64_t free = number("PRAGMA freelist_count");
  const std::int64_t wanted =
      std::max(pages - most_bytes / page, free - std::max(kFreePagesKept, pages / 8));
  if (wanted > 0 && free > 0)
    sqlite_.exec(fmt::format("PRAGMA incremental_vacuum({})", std::min(wanted, kMostPagesShrunk)));
}

}  // namespace derate
