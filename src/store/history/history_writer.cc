#include "store/history/history_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "store/sqlite_rows.h"

namespace derate {
namespace {

constexpr std::int64_t kRowSeconds = 60;  // of the finest tier
// Seconds wait until they are so many and their minute is over: a clock that jumps to and fro folds
// no oftener. However they come, they do not become more than the second number.
constexpr std::int64_t kFoldAt = 60, kMostRecent = 600;
// Tenants come and go: the ids of these, or of twice as many as there are now, are remembered.
constexpr std::size_t kMostKnownSeries = 512;

std::int64_t minute_of(std::int64_t unix_s) { return floor_divide(unix_s, kRowSeconds); }

// A second's points of a kind, ascending by series.
std::string parts_of_second(const std::map<std::int64_t, HistoryPoint>& points,
                            HistoryChunk& chunk) {
  std::string out;
  for (const auto& [series, point] : points) {
    chunk.clear();
    chunk.fold(0, point);
    append_part(out, series, chunk.encoded());
  }
  return out;
}

std::string fields_text(const Event& event) {
  Json out = Json::array();
  for (const auto& [name, value] : event.fields) out.push_back({name, value});
  return json_text(out);
}

}  // namespace

std::int64_t HistoryWriter::number(const std::string& query) {
  return sqlite_.execAndGet(query).getInt64();
}

std::int64_t HistoryWriter::run_ms() {
  return number(
      "SELECT max((SELECT max(total_ms) FROM run), "
      "ifnull((SELECT run_ms FROM recent ORDER BY id DESC LIMIT 1), 0))");
}

void HistoryWriter::set_run_ms(std::int64_t run_ms) {
  sqlite_.exec(fmt::format("UPDATE run SET total_ms = {}", run_ms));
}

std::int64_t HistoryWriter::id_of(const HistorySeriesKey& key) {
  if (const auto at = series_.find(key); at != series_.end()) return at->second;
  const auto kind = static_cast<int>(key.kind);
  SQLite::Statement known(
      sqlite_,
      "SELECT id FROM series WHERE gpu = ? AND kind = ? AND policy = ? AND tenant = ? AND pid = ? "
      "AND process = ? AND user = ? AND container = ? AND name_space = ? AND pod = ? AND job = ? "
      "AND instance = ?");
  RowBinder{known}.all(key.gpu, kind, key.policy, key.tenant, key.labels);
  if (known.executeStep()) return series_[key] = known.getColumn(0).getInt64();
  execute(sqlite_,
          fmt::format("INSERT INTO series (gpu, kind, policy, tenant, {}) VALUES "
                      "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      kLabelColumns),
          key.gpu, kind, key.policy, key.tenant, key.labels);
  return series_[key] = sqlite_.getLastInsertRowid();
}

void HistoryWriter::add(const HistorySecond& second, std::int64_t run_ms) {
  if (series_.size() > std::max(kMostKnownSeries, 2 * second.parts.size())) series_.clear();
  std::array<std::map<std::int64_t, HistoryPoint>, std::size(kHistoryKinds)> points;
  for (const HistorySecond::Part& part : second.parts)
    points[static_cast<std::size_t>(part.key.kind)][id_of(part.key)].fold(part.point);
  RecentRow row{.begin_s = whole_second(second.begin), .run_ms = run_ms};
  HistoryChunk chunk;
  for (const HistoryKind kind : kHistoryKinds) {
    const auto& its = points[static_cast<std::size_t>(kind)];
    if (its.empty()) continue;
    row.bytes[static_cast<std::size_t>(kind)] = seal_recent(row, kind, parts_of_second(its, chunk));
  }
  execute(sqlite_,
          "INSERT INTO recent (begin_unix_seconds, run_ms, gpu, tenant) VALUES (?, ?, ?, ?)",
          row.begin_s, row.run_ms, Blob{row.bytes[0]}, Blob{row.bytes[1]});
}

void HistoryWriter::add(const Event& event, std::int64_t run_ms) {
  const auto last = number("SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'event'");
  execute(sqlite_,
          "INSERT INTO event (id, run_ms, time, kind, gpu, gpu_index, message, fields) VALUES "
          "(?, ?, ?, ?, ?, ?, ?, ?)",
          std::max(event.id, last + 1), run_ms, event.time, std::string(info_of(event.kind).name),
          event.gpu, event.gpu_index, event.message, fields_text(event));
}

void HistoryWriter::add(const HistoryDecision& decision, std::int64_t run_ms) {
  execute(sqlite_,
          "INSERT INTO decision (run_ms, gpu, time, policy, source, who, rule, reason, "
          "asked_clock_mhz, sm_clock_mhz, set_power_limit_watts, expected_performance_ratio, "
          "promised_performance_ratio, bound) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
          run_ms, decision.gpu, decision.time, decision.policy, decision.source, decision.who,
          decision.rule, decision.reason, decision.asked_clock_mhz, decision.sm_clock_mhz,
          decision.set_power_limit_watts, decision.expected_performance_ratio,
          decision.promised_performance_ratio, decision.bound);
}

void HistoryWriter::add(const HistoryRows& rows, std::int64_t run_ms) {
  // The newest row of `recent` tells the time of runs, too.
  if (rows.seconds.empty()) set_run_ms(run_ms);
  for (const HistorySecond& second : rows.seconds) {
    add(second, run_ms);
    fold_recent(whole_second(second.begin), run_ms);
  }
  for (const Event& event : rows.events) add(event, run_ms);
  for (const HistoryDecision& decision : rows.decisions) add(decision, run_ms);
}

// --- folding -------------------------------------------------------------------------------------

void HistoryWriter::fold_recent(std::int64_t newest_s, std::int64_t run_ms) {
  const std::int64_t waiting =
      number("SELECT ifnull((SELECT max(id) FROM recent) - (SELECT min(id) FROM recent) + 1, 0)");
  if (waiting <= kFoldAt) return;
  const std::int64_t minute_s = minute_of(newest_s) * kRowSeconds;
  const std::string others = waiting >= kMostRecent
                                 ? std::string("true")
                                 : fmt::format("begin_unix_seconds NOT BETWEEN {} AND {}", minute_s,
                                               minute_s + kRowSeconds - 1);
  auto rows = recent_rows(sqlite_, others);
  if (rows.empty()) return;
  set_run_ms(run_ms);
  std::stable_sort(rows.begin(), rows.end(), [](const RecentRow& a, const RecentRow& b) {
    return minute_of(a.begin_s) < minute_of(b.begin_s);
  });
  for (auto at = rows.begin(); at != rows.end();) {
    const auto end = std::find_if(at, rows.end(), [&](const RecentRow& row) {
      return minute_of(row.begin_s) != minute_of(at->begin_s);
    });
    for (const HistoryKind kind : kHistoryKinds) fold_minute(kind, {at, end}, run_ms);
    at = end;
  }
  sqlite_.exec("DELETE FROM recent WHERE " + others);
}

void HistoryWriter::fold_minute(HistoryKind kind, std::span<const RecentRow> seconds,
                                std::int64_t run_ms) {
  const std::int64_t begin_s = minute_of(seconds.front().begin_s) * kRowSeconds;
  std::map<std::int64_t, std::vector<std::pair<int, std::string_view>>> chunks;  // by series
  for (const RecentRow& second : seconds) {
    const auto parts = open_recent(second, kind);
    if (!parts.ok()) {
      broken_.push_back(fmt::format("recent {}: {}", second.id, parts.error().message));
      continue;
    }
    for (const HistoryPart& part : *parts)
      chunks[part.series].emplace_back(static_cast<int>(second.begin_s - begin_s), part.chunk);
  }
  if (chunks.empty()) return;
  std::vector<std::int64_t> series;
  for (const auto& [id, its] : chunks) series.push_back(id);
  std::map<std::int64_t, HistoryPoint> sums;
  HistoryChunk one;
  const auto fill_seconds = [&](std::int64_t id, HistoryChunk& chunk) {
    for (const auto& [slot, bytes] : chunks[id]) {
      if (!one.decode(bytes, 1).ok()) continue;
      const HistoryPoint point = one.point(0);
      chunk.fold(slot, point);
      sums[id].fold(point);
    }
  };
  update_row({kind, 0}, begin_s / kRowSeconds, run_ms, series, fill_seconds);
  for (std::size_t tier = 1; tier < kHistoryTierCount; ++tier) {
    const HistoryTier& scale = kHistoryTiers[tier];
    const std::int64_t row = floor_divide(begin_s, scale.row_s());
    const auto slot = static_cast<int>((begin_s - row * scale.row_s()) / scale.unit_s);
    update_row({kind, tier}, row, run_ms, series,
               [&](std::int64_t id, HistoryChunk& chunk) { chunk.fold(slot, sums[id]); });
  }
}

std::vector<HistoryPart> HistoryWriter::parts_or_none(const HistoryTable& table,
                                                      const HistoryRow& row) {
  auto parts = open_row(table, row);
  if (parts.ok()) return *std::move(parts);
  broken_.push_back(fmt::format("{} {}: {}", table.name(), row.row, parts.error().message));
  return {};
}

void HistoryWriter::update_row(const HistoryTable& table, std::int64_t row, std::int64_t run_ms,
                               const std::vector<std::int64_t>& series, const Fill& fill) {
  const auto before = find_row(sqlite_, table, row);
  const auto kept = before ? parts_or_none(table, *before) : std::vector<HistoryPart>{};
  HistoryRow now{.row = row, .run_ms = run_ms, .slots = kept.empty() ? 0 : before->slots};
  std::string parts;
  HistoryChunk chunk;
  auto old = kept.begin();
  for (const std::int64_t id : series) {
    for (; old != kept.end() && old->series < id; ++old)
      append_part(parts, old->series, old->chunk);
    chunk.clear();
    if (old != kept.end() && old->series == id) {
      if (!chunk.decode(old->chunk, table.scale().slots).ok()) {
        broken_.push_back(fmt::format("{} {}, series {}", table.name(), row, id));
        chunk.clear();
      }
      ++old;
    }
    fill(id, chunk);
    now.slots |= chunk.slots();
    append_part(parts, id, chunk.encoded());
  }
  for (; old != kept.end(); ++old) append_part(parts, old->series, old->chunk);
  now.bytes = seal_row(table, now, parts);
  execute(sqlite_, fmt::format("INSERT OR REPLACE INTO {} VALUES (?, ?, ?, ?)", table.name()),
          now.row, now.run_ms, static_cast<std::int64_t>(now.slots), Blob{now.bytes});
}

}  // namespace derate
