// Changes to a history in one transaction of its writer: adds seconds, events and decisions, folds
// seconds into the coarser tiers, and drops old rows.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "store/history/history_file.h"
#include "store/history/history_store.h"

namespace derate {

using HistorySeriesIds = std::map<HistorySeriesKey, std::int64_t>;

class HistoryWriter {
 public:
  // `series`: the ids that are known already; those that are found or made are put there.
  HistoryWriter(SQLite::Database& sqlite, HistorySeriesIds& series)
      : sqlite_(sqlite), series_(series) {}

  // The time of all runs.
  std::int64_t run_ms();
  void set_run_ms(std::int64_t run_ms);
  void add(const HistoryRows& rows, std::int64_t run_ms);
  HistoryStore::Tidied tidy(const HistoryBounds& bounds, std::int64_t run_ms);
  // Rows that could not be read and were left out.
  const std::vector<std::string>& broken() const { return broken_; }

 private:
  std::int64_t number(const std::string& query);
  std::int64_t id_of(const HistorySeriesKey& key);
  void add(const HistorySecond& second, std::int64_t run_ms);
  void add(const Event& event, std::int64_t run_ms);
  void add(const HistoryDecision& decision, std::int64_t run_ms);

  void fold_recent(std::int64_t newest_s, std::int64_t run_ms);
  void fold_minute(HistoryKind kind, std::span<const RecentRow> seconds, std::int64_t run_ms);
  // fill(series, chunk) folds into a chunk what comes to it.
  using Fill = std::function<void(std::int64_t series, HistoryChunk& chunk)>;
  void update_row(const HistoryTable& table, std::int64_t row, std::int64_t run_ms,
                  const std::vector<std::int64_t>& series, const Fill& fill);
  std::vector<HistoryPart> parts_or_none(const HistoryTable& table, const HistoryRow& row);

  void drop_old_points(const HistoryBounds& bounds, std::int64_t run_ms);
  void drop_events(const HistoryBounds& bounds, std::int64_t run_ms);
  void drop_decisions(const HistoryBounds& bounds, std::int64_t run_ms);
  void drop_first(const char* table, std::int64_t many);
  bool drop_for_size(const HistoryBounds& bounds, std::int64_t run_ms);
  int drop_oldest(const HistoryTable& table, std::int64_t bytes, std::int64_t run_ms);
  void sweep_series(std::int64_t run_ms);
  void shrink(std::int64_t most_bytes);

  SQLite::Database& sqlite_;
  HistorySeriesIds& series_;
  std::vector<std::string> broken_;
};

}  // namespace derate
