// Reads events and decisions of the history.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "store/history/history_file.h"
#include "store/history/history_store.h"
#include "store/sqlite_rows.h"

namespace derate {
namespace {

std::int64_t limit_of(std::size_t most) {
  constexpr std::size_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(most, kMost));
}

std::vector<std::pair<std::string, std::string>> fields_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> out;
  const Json all = parse_json(text);
  if (!all.is_array()) return out;
  for (const Json& each : all)
    if (each.is_array() && each.size() == 2 && each[0].is_string() && each[1].is_string())
      out.emplace_back(each[0].get<std::string>(), each[1].get<std::string>());
  return out;
}

std::vector<Event> events_in(SQLite::Database& sqlite, const EventQuery& query) {
  SQLite::Statement row(sqlite,
                        "SELECT id, time, kind, gpu, gpu_index, message, fields FROM event WHERE "
                        "id > ? AND time >= ? AND time < ? AND (? = '' OR gpu = ?) ORDER BY id "
                        "DESC LIMIT ?");
  RowBinder{row}.all(query.after, query.from.value_or(WallTime::min()),
                     query.to.value_or(WallTime::max()), query.gpu, query.gpu,
                     limit_of(query.most));
  std::vector<Event> out;
  while (row.executeStep()) {
    Event event;
    std::string kind, fields;
    RowReader{row}.all(event.id, event.time, kind, event.gpu, event.gpu_index, event.message,
                       fields);
    const EventInfo* info = find_event(kind);
    if (info == nullptr) continue;
    event.kind = info->kind;
    event.fields = fields_of(fields);
    out.push_back(std::move(event));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Those that were left out before an event (docs/events.md) are not counted here: their number is
// in its fields.
EventCounts counts_in(SQLite::Database& sqlite, const EventQuery& query) {
  SQLite::Statement row(sqlite,
                        "SELECT kind, count(*) FROM event WHERE id > ? AND time >= ? AND time < ? "
                        "AND (? = '' OR gpu = ?) GROUP BY kind");
  RowBinder{row}.all(query.after, query.from.value_or(WallTime::min()),
                     query.to.value_or(WallTime::max()), query.gpu, query.gpu);
  EventCounts out;
  while (row.executeStep()) {
    std::string kind;
    std::int64_t count = 0;
    RowReader{row}.all(kind, count);
    const EventInfo* info = find_event(kind);
    if (info == nullptr) continue;
    out.total += count;
    if (info->severity == EventSeverity::warning) out.warnings += count;
    if (info->severity == EventSeverity::error) out.errors += count;
  }
  return out;
}

std::string field_in(const std::vector<std::pair<std::string, std::string>>& fields,
                     const std::string& name) {
  for (const auto& [key, value] : fields)
    if (key == name) return value;
  return {};
}

std::vector<HistoryDecision> decisions_in(SQLite::Database& sqlite, const std::string& gpu,
                                          WallTime at, std::size_t most) {
  SQLite::Statement row(sqlite,
                        "SELECT time, gpu, policy, source, who, rule, reason, asked_clock_mhz, "
                        "sm_clock_mhz, set_power_limit_watts, expected_performance_ratio, "
                        "promised_performance_ratio, bound FROM decision WHERE gpu = ? AND time "
                        "<= ? ORDER BY id DESC LIMIT ?");
  RowBinder{row}.all(gpu, at, limit_of(most));
  std::vector<HistoryDecision> out;
  while (row.executeStep()) {
    HistoryDecision& each = out.emplace_back();
    RowReader{row}.all(each.time, each.gpu, each.policy, each.source, each.who, each.rule,
                       each.reason, each.asked_clock_mhz, each.sm_clock_mhz,
                       each.set_power_limit_watts, each.expected_performance_ratio,
                       each.promised_performance_ratio, each.bound);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<CommandedPolicy> commanded_in(SQLite::Database& sqlite) {
  SQLite::Statement row(
      sqlite,
      "SELECT gpu, kind, fields FROM event WHERE id IN (SELECT max(id) FROM event "
      "WHERE gpu <> '' AND kind IN ('governed', 'released') GROUP BY gpu) ORDER "
      "BY gpu");
  std::vector<CommandedPolicy> out;
  while (row.executeStep()) {
    CommandedPolicy each;
    std::string kind, text;
    RowReader{row}.all(each.gpu, kind, text);
    const auto fields = fields_of(text);
    each.policy = field_in(fields, "policy");
    each.who = field_in(fields, "who");
    if (kind == info_of(EventKind::governed).name && field_in(fields, "source") == "command")
      out.push_back(std::move(each));
  }
  return out;
}

Result<std::vector<Event>> read_events(const std::string& path, const EventQuery& query) {
  return read_history_file(path,
                           [&](SQLite::Database& sqlite) { return events_in(sqlite, query); });
}

Result<EventCounts> count_events(const std::string& path, const EventQuery& query) {
  return read_history_file(path,
                           [&](SQLite::Database& sqlite) { return counts_in(sqlite, query); });
}

Result<std::vector<HistoryDecision>> read_decisions(const std::string& path, const std::string& gpu,
                                                    WallTime at, std::size_t most) {
  return read_history_file(
      path, [&](SQLite::Database& sqlite) { return decisions_in(sqlite, gpu, at, most); });
}

}  // namespace derate
