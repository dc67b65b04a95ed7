// Energy usage in one SQLite file: sums by tenant and minute, and those of the boards, so that
// every bill adds up to what the boards used. After a while minutes become quarters of an hour:
// every time zone's hours and days are made of those.
//
// Age is the time for which Derate has run since a row was written, never that of the clock on the
// wall: one that is wrong, in whichever direction and for however long, deletes nothing.
//
// Savings are kept next to the usage, under the method by which they were estimated: figures of two
// methods are never added up. An unknown saving has no row; a row of 0 is a saving of 0.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/program_watts.h"
#include "core/saving.h"
#include "core/tenant_labels.h"

namespace derate {

class SqliteFile;

using UsageSavings = std::map<std::string, SavingSums>;  // by method
void add_savings(UsageSavings& sum, const UsageSavings& more);

// Millijoules and milliseconds, none negative; what they mean: attrib/energy_accounts.h.
struct UsageSums {
  std::int64_t base_mj = 0, context_mj = 0, dynamic_mj = 0;
  std::int64_t sigma_mj = 0, unsure_mj = 0, prior_mj = 0;
  std::int64_t time_ms = 0;
  UsageSavings savings = {};

  std::int64_t total_mj() const { return base_mj + context_mj + dynamic_mj; }
  void add(const UsageSums& more);
  bool operator==(const UsageSums&) const = default;
};

struct UsageBoardSums {
  std::int64_t board_mj = 0, unallocated_mj = 0, by_power_mj = 0;
  std::int64_t time_ms = 0, lost_ms = 0;
  UsageSavings unallocated_savings = {};  // what was saved of `unallocated_mj`

  void add(const UsageBoardSums& more);
  bool operator==(const UsageBoardSums&) const = default;
};

// `bucket`: the beginning of its minute.
struct UsageRow {
  WallTime bucket{};
  std::string gpu, key;
  TenantLabels labels;
  UsageSums sums;

  bool operator==(const UsageRow&) const = default;
};
struct UsageBoardRow {
  WallTime bucket{};
  std::string gpu;
  UsageBoardSums sums;

  bool operator==(const UsageBoardRow&) const = default;
};

inline constexpr Duration kUsageBucket = std::chrono::minutes(1);
WallTime usage_bucket(WallTime time);

// The board's energy counter at the end of the newest tick; empty: that tick's energy was not read
// from the counter.
struct UsageCounter {
  std::optional<std::int64_t> counter_mj;
  WallTime at{};

  bool operator==(const UsageCounter&) const = default;
};

// What is added in one piece: all or nothing. Board = unallocated + tenants in each minute and GPU.
struct UsageRows {
  std::vector<UsageRow> tenants;
  std::vector<UsageBoardRow> boards;
  std::map<std::string, UsageCounter> counters = {};  // by GPU

  bool empty() const { return tenants.empty() && boards.empty(); }
};

// Of a time, as exact as its buckets, so much is not known.
struct UsageLoss {
  WallTime from{}, to{};
  std::int64_t lost_ms = 0;  // summed over boards

  bool operator==(const UsageLoss&) const = default;
};

// Summed over a time: of each tenant, under each set of labels it had.
struct Usage {
  std::vector<UsageRow> tenants;        // `bucket`: the first; by GPU and key
  std::vector<UsageBoardRow> boards;    // by GPU
  std::vector<UsageLoss> losses;        // ascending, apart from each other
  std::int64_t broken_rows = 0;         // changed since they were written, of all GPUs
  std::optional<WallTime> first, last;  // the begin of the first bucket, the end of the last
};

using ProgramsByProduct = std::map<std::string, std::vector<ProgramWatts>>;

// For one thread. A write does not wait for the disk: a killed process loses nothing of what was
// added, a power cut the newest.
class UsageStore {
 public:
  // Minutes become quarters of an hour when they are that old.
  static constexpr Duration kMinutesFor = std::chrono::hours(24 * 7);
  // Who adds more seldom loses more, when it is killed, than is shown.
  static constexpr Duration kMostBetween = std::chrono::minutes(1);
  // That a file was set aside (bad_data).
  using OnError = std::function<void(const Error&)>;

  // Opened when it is first needed, and made; a file that is broken, or not ours, becomes
  // PATH.aside-TIME (sqlite_file.h).
  explicit UsageStore(std::string path, OnError on_error = {});
  ~UsageStore();
  UsageStore(const UsageStore&) = delete;
  UsageStore& operator=(const UsageStore&) = delete;

  // A run begins at `now`, of these GPUs. Where the one before came to no end(), what it had not
  // added is lost: from its last add() to `now`, at most kMostBetween, on each of these boards. It
  // is kept with the next add(), or at once where there is a file already.
  // Errors of all: no_permission, busy, io, bad_data for a file that a newer version wrote; then
  // nothing was added, and a run is begun with the next.
  Result<void> begin(WallTime now, std::vector<std::string> gpus);
  // Takes the first reading of a GPU in this run. If the run before was killed, the time since
  // begin() is lost, too. The energy counted since the newest added tick then belongs to the board
  // and to no tenant. It is left out if the counter went back, if more than kMostBetween has
  // passed, or if it exceeds `most` for that time.
  Result<void> resume(const std::string& gpu, std::optional<std::int64_t> counter_mj, Watts most,
                      WallTime now);
  // Everything until `now` is in `rows` or was added before. `ran`: how long the run has lasted, by
  // a clock that nobody sets.
  Result<void> add(const UsageRows& rows, WallTime now, Duration ran);
  // The run is over, and all of it was added.
  Result<void> end();
  // Drops what was written more than `keep` ago, in time of runs; makes quarters of minutes.
  Result<void> tidy(Duration keep);

  // The watts of programs, by product of GPU: kept next to the usage and dropped as it is. Of one
  // product at most kMostPrograms, those written last.
  static constexpr std::size_t kMostPrograms = 1000;
  Result<void> keep(const ProgramsByProduct& changed);
  // The oldest first. Nothing where there is no file.
  Result<ProgramsByProduct> programs();

 private:
  struct Run {
    WallTime began{};
    std::vector<std::string> gpus;
  };

  // Of a run after one that was killed.
  struct Resumed {
    WallTime began{};
    std::set<std::string> read;  // GPUs that have had their first reading
  };

  std::string path_;
  std::unique_ptr<SqliteFile> file_;
  std::optional<Run> begins_;  // a run that is not stored yet
  std::optional<Resumed> resumed_;
  Duration counted_{};  // time of this run that is in the time of all runs
};

// What buckets that begin in [from, to) hold. Reads only, also while somebody writes. `gpus`: only
// these UUIDs; empty: all. Errors: not_found where nothing was ever kept, no_permission, busy, io,
// bad_data.
Result<Usage> read_usage(const std::string& path, WallTime from, WallTime to,
                         const std::vector<std::string>& gpus = {});

}  // namespace derate
