// Who used how much energy, kept in one SQLite file: sums by tenant and minute, and those of the
// boards, so that every bill adds up to what the boards used. After a while minutes become hours.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/tenant_labels.h"

namespace derate {

// Millijoules and milliseconds, none negative; what they mean: attrib/account_book.h.
struct UsageSums {
  std::int64_t base_mj = 0, context_mj = 0, dynamic_mj = 0;
  std::int64_t sigma_mj = 0, unsure_mj = 0;
  std::int64_t time_ms = 0;

  std::int64_t total_mj() const { return base_mj + context_mj + dynamic_mj; }
  void add(const UsageSums& more);
  bool operator==(const UsageSums&) const = default;
};

struct UsageBoardSums {
  std::int64_t board_mj = 0, unallocated_mj = 0, by_power_mj = 0;
  std::int64_t time_ms = 0, lost_ms = 0;

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

// What is added in one piece: all or nothing. Board = unallocated + tenants in each minute and GPU.
struct UsageRows {
  std::vector<UsageRow> tenants;
  std::vector<UsageBoardRow> boards;

  bool empty() const { return tenants.empty() && boards.empty(); }
};

// Summed over a time: of each tenant, under each set of labels it had.
struct Usage {
  std::vector<UsageRow> tenants;        // `bucket`: the first; by GPU and key
  std::vector<UsageBoardRow> boards;    // by GPU
  std::optional<WallTime> first, last;  // the begin of the first bucket, the end of the last
};

// For one thread. A write does not wait for the disk: a killed process loses nothing of what was
// added, a power cut the newest.
class UsageStore {
 public:
  // Minutes become hours when they are that old.
  static constexpr Duration kMinutesFor = std::chrono::hours(24 * 7);
  // That a file was set aside (bad_data).
  using Tell = std::function<void(const Error&)>;

  // Opened when it is first needed, and made; a file that is broken, or not ours, becomes
  // PATH.aside.
  explicit UsageStore(std::string path, Tell tell = {});
  ~UsageStore();
  UsageStore(const UsageStore&) = delete;
  UsageStore& operator=(const UsageStore&) = delete;

  // Errors of both: no_permission, busy, io, bad_data for a file that a newer version wrote; then
  // nothing was added.
  Result<void> add(const UsageRows& rows);
  // Drops what is older than `keep`, and makes hours of minutes.
  Result<void> tidy(WallTime now, Duration keep);

 private:
  struct Database;
  void open();
  template <class F>
  Result<void> attempt(F&& work);
  bool set_aside(const std::string& why);

  std::string path_;
  Tell tell_;
  std::unique_ptr<Database> database_;
};

// What buckets that begin in [from, to) hold. Reads only, also while somebody writes. `gpus`: only
// these UUIDs; empty: all. Errors: not_found where nothing was ever kept, no_permission, busy, io,
// bad_data.
Result<Usage> read_usage(const std::string& path, WallTime from, WallTime to,
                         const std::vector<std::string>& gpus = {});

}  // namespace derate
