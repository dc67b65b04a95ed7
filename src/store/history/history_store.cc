#include "store/history/history_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "store/history/history_file.h"
#include "store/history/history_writer.h"
#include "store/sqlite_file.h"

namespace derate {
namespace {

// A small one: what is written each second is in few pages.
constexpr int kHistoryCacheKibibytes = 512;

HistoryBounds in_order(HistoryBounds bounds) {
  bounds.minutes_for = std::max(bounds.minutes_for, bounds.seconds_for);
  bounds.hours_for = std::max(bounds.hours_for, bounds.minutes_for);
  return bounds;
}

}  // namespace

HistoryStore::HistoryStore(std::string path, HistoryBounds bounds, OnError on_error)
    : path_(std::move(path)),
      bounds_(in_order(bounds)),
      on_error_(std::move(on_error)),
      file_(std::make_unique<SqliteFile>(SqliteFile::Options{
          .path = path_,
          .schema = kHistorySchema,
          .busy_milliseconds = kHistoryBusyMilliseconds,
          .cache_kibibytes = kHistoryCacheKibibytes,
          .cut_log = SqliteFile::CutLog::at_once,  // on the caller's thread, which may wait
          .on_error = on_error_})) {}
HistoryStore::~HistoryStore() = default;

void HistoryStore::forget() {
  series_.clear();
  run_ms_.reset();
}

// Runs work(HistoryWriter&, run_ms), `run_ms` being the time of all runs.
template <class F>
auto HistoryStore::write(Duration ran, F&& work) {
  std::vector<std::string> broken;
  const auto whole_ms = [](Duration time) {
    return std::int64_t{std::chrono::floor<std::chrono::milliseconds>(time).count()};
  };
  const std::int64_t more_ms = std::max<std::int64_t>(0, whole_ms(ran) - whole_ms(counted_));
  auto done = file_->write([&](SQLite::Database& sqlite) {
    if (std::exchange(generation_, file_->generation()) != file_->generation()) forget();
    HistoryWriter writer(sqlite, series_);
    run_ms_ = (run_ms_ ? *run_ms_ : writer.run_ms()) + more_ms;
    auto out = work(writer, *run_ms_);
    broken = writer.broken();
    return out;
  });
  if (!done.ok()) {
    forget();  // what was made is not in the file
    return done;
  }
  counted_ = std::max(counted_, ran);
  for (const std::string& row : broken)
    if (on_error_) on_error_({Errc::bad_data, fmt::format("'{}': {}: left out", path_, row)});
  return done;
}

Result<void> HistoryStore::add(const HistoryRows& rows, Duration ran) {
  const auto done = write(ran, [&](HistoryWriter& writer, std::int64_t run_ms) {
    writer.add(rows, run_ms);
    return true;
  });
  if (!done.ok()) return done.error();
  return {};
}

Result<HistoryStore::Tidied> HistoryStore::tidy(Duration ran) {
  // Made when there is something to keep: until then the journal needs the room.
  if (is_missing(path_)) return Tidied{};
  return write(ran, [&](HistoryWriter& writer, std::int64_t run_ms) {
    return writer.tidy(bounds_, run_ms);
  });
}

Result<std::int64_t> HistoryStore::last_event() {
  if (is_missing(path_)) return 0;
  return file_->attempt(SqliteFile::Use::read, [](SQLite::Database& sqlite) {
    return sqlite.execAndGet("SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'event'")
        .getInt64();
  });
}

Result<std::vector<CommandedPolicy>> HistoryStore::commanded_policies() {
  if (is_missing(path_)) return std::vector<CommandedPolicy>();
  return file_->attempt(SqliteFile::Use::read, commanded_in);
}

void HistoryStore::distrust() { file_->distrust(); }

}  // namespace derate
