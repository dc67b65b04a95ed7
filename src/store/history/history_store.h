// The history of GPUs and their tenants in one SQLite file: seconds for a day, minutes for 90 days,
// hours for five years, with events and decisions. Bounded in size; where it would grow beyond, the
// tenants' oldest seconds go first.
//
// Age is the time for which Derate has run since a row was written, never that of the clock on the
// wall: one that is wrong, in whichever direction and for however long, deletes nothing (as in
// usage_store.h). A second that comes twice, as after that clock was set back, is folded with what
// it has. Times are UTC: a daylight saving time changes nothing.
//
// A row of points whose bytes are not those that were written is a gap: it is left out, reported
// where it can be (History::broken_rows), and replaced where something is added to it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/event.h"
#include "store/history/history.h"

namespace derate {

class SqliteFile;

// A coarser tier is kept for as long as a finer one at least.
struct HistoryBounds {
  Duration seconds_for = std::chrono::hours(24);
  Duration minutes_for = std::chrono::hours(24 * 90);
  Duration hours_for = std::chrono::hours(24 * 365 * 5);
  std::int64_t most_bytes = 390'000'000;  // of the file; its log has 4 MiB besides
  Duration events_for = std::chrono::hours(24 * 400);
  std::int64_t most_events = 100'000;  // the newest
  // Of each GPU some before that are kept, too: the last of them was in force at its beginning.
  Duration decisions_for = std::chrono::hours(25);
  std::int64_t most_decisions = 100'000;  // each GPU's newest, as many of each
};

// What is added in one piece: all or nothing.
struct HistoryRows {
  std::vector<HistorySecond> seconds;
  // Their ids are given here, ascending; one that has an id above those of all before keeps it.
  std::vector<Event> events;
  std::vector<HistoryDecision> decisions;

  bool empty() const { return seconds.empty() && events.empty() && decisions.empty(); }
};

// What the size of the file has cost: of the points of a kind and length those before `from` were
// dropped although they were not old yet.
struct HistoryCut {
  HistoryKind kind = HistoryKind::tenant;
  Duration length{};  // a second, a minute or an hour
  WallTime from{};
  bool operator==(const HistoryCut&) const = default;
};

// For one thread, StoreWriter's. A write does not wait for the disk: a killed process loses nothing
// of what was added, a power cut the newest.
// A policy that a command had given a GPU when its last event was written.
struct CommandedPolicy {
  std::string gpu;  // UUID
  std::string policy, who;
  bool operator==(const CommandedPolicy&) const = default;
};

class HistoryStore {
 public:
  // That a file was set aside, or a row left out (bad_data).
  using OnError = std::function<void(const Error&)>;

  // Opened when it is first needed, and made; a file that is broken, or not ours, becomes
  // PATH.aside-TIME (sqlite_file.h).
  explicit HistoryStore(std::string path, HistoryBounds bounds = {}, OnError on_error = {});
  ~HistoryStore();
  HistoryStore(const HistoryStore&) = delete;
  HistoryStore& operator=(const HistoryStore&) = delete;

  // `ran`: how long this run has lasted, by a clock that nobody sets. Folds seconds into minutes
  // and minutes into hours as they are complete.
  // Errors of all: no_permission, busy, io, bad_data for a file that a newer version wrote; then
  // nothing was added.
  Result<void> add(const HistoryRows& rows, Duration ran);
  // Drops what is older than the bounds; once a minute or so. What was dropped for the sake of the
  // size alone is told: the beginning of the tenants' seconds that are left.
  struct Tidied {
    std::int64_t bytes = 0;                        // of the file now
    std::optional<WallTime> tenants_seconds_from;  // empty: none was dropped for its size
    std::vector<HistoryCut> cuts;                  // all that was, and would not be old yet
  };
  Result<Tidied> tidy(Duration ran);
  // The highest id of an event so far; 0: none.
  Result<std::int64_t> last_event();
  // By the last events `governed` and `released` of each GPU, in the order of UUIDs.
  Result<std::vector<CommandedPolicy>> commanded_policies();
  // A reader found the file broken: it is read as a whole before the next use.
  void distrust();

 private:
  template <class F>
  auto write(Duration ran, F&& work);
  void forget();  // what is known of the file

  std::string path_;
  HistoryBounds bounds_;
  OnError on_error_;
  std::unique_ptr<SqliteFile> file_;
  Duration counted_{};                               // of this run, and added to the time of all
  std::map<HistorySeriesKey, std::int64_t> series_;  // ids of the file of generation_
  std::optional<std::int64_t> run_ms_;  // the time of all runs, in the file of generation_
  int generation_ = 0;
};

// --- reading, also while somebody writes --------------------------------------------------------
// Errors of all: not_found where nothing was ever kept, no_permission, busy, io, bad_data.

// The steps that [from, to) touches, whole.
struct HistoryQuery {
  WallTime from{}, to{};
  std::vector<std::string> gpus;  // UUIDs; empty: all
  std::optional<HistoryKind> kind;
  std::size_t most_points = 1000;  // of a series: steps become longer until it holds
  // Of all series together: months of tenants that came and went do not fit a daemon's memory.
  std::size_t most_steps = 100'000;
};

// `begin` of a step of `length`; steps without a point are gaps.
struct HistoryStep {
  WallTime begin{};
  Duration length{};
  HistoryPoint point;
  bool operator==(const HistoryStep&) const = default;
};
struct HistorySeries {
  HistorySeriesKey key;
  std::vector<HistoryStep> steps;  // ascending; of one length
};
struct History {
  Duration step{};                    // the length of all
  std::vector<HistorySeries> series;  // by GPU, kind, key
  // Of all that is kept: the begin of the first, the end of the last.
  std::optional<WallTime> first, last;
  std::vector<HistoryCut> cuts;
  std::size_t broken_rows = 0;  // left out: gaps
};
// The finest of the tiers that has all that is known of it, folded to steps of a round length (1,
// 2, 5, 10, 15, 30 of seconds or minutes; 1, 2, 3, 6, 12 hours; days of UTC) that begin at
// multiples of it. The range ends where history does. A point takes 400 bytes of memory.
Result<History> read_history(const std::string& path, const HistoryQuery& query);

enum class SavingsBy : std::uint8_t { gpu, job, user, policy };
// What one of them used and saved in one hour (as far as history reaches, sums of whole hours).
struct SavingsHour {
  WallTime hour{};
  std::string key;  // a UUID, a job, a user or a policy; empty: nobody's
  std::int64_t covered_ms = 0, energy_mj = 0;
  std::int64_t saved_of_mj = 0, saved_at_highest_mj = 0, saved_sd_mj = 0;
  bool operator==(const SavingsHour&) const = default;
};
inline constexpr std::size_t kMostSavingsHours = 200'000;
// Of the hours that begin in [from, to), by hour and key. What no tenant of that label had (an idle
// board) is nobody's: the sums of energies over all keys are those of the boards, exactly, so that
// nobody's are below zero where tenants were given more than a board that was not read. covered_ms
// of a job or user is the time of its tenants, which others may share; nobody's is the boards'.
// Errors: also invalid_argument where there are more than kMostSavingsHours.
Result<std::vector<SavingsHour>> read_savings(const std::string& path, SavingsBy by, WallTime from,
                                              WallTime to);

struct EventQuery {
  std::optional<WallTime> from, to;
  std::int64_t after = 0;   // an id: those after it
  std::string gpu;          // UUID; empty: of all, and of the service
  std::size_t most = 1000;  // the newest of them
};
// How many there are, of all that a query takes but for `most`.
struct EventCounts {
  std::int64_t total = 0, warnings = 0, errors = 0;
};
Result<EventCounts> count_events(const std::string& path, const EventQuery& query);
// Ascending by id.
Result<std::vector<Event>> read_events(const std::string& path, const EventQuery& query);

// The decisions of a GPU whose time is at most `at`, in the order in which they were made; at most
// so many, the newest.
Result<std::vector<HistoryDecision>> read_decisions(const std::string& path, const std::string& gpu,
                                                    WallTime at, std::size_t most);

}  // namespace derate
