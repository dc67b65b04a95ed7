// Files of the published GEEPAFS experiments, for users with scripts on them: parses the daemon's
// log, and writes that log, the jobs' output, and the two tables made of them. Read from their
// repository's own examples.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/lab_store.h"

namespace derate {

// dvfs_POLICY.out: a line a tick.
struct GeepafsLog {
  struct Gpu {
    int gpu_utilisation = 0, memory_utilisation = 0;  // percent
    Watts power{};
    Megahertz sm_clock{};            // before the set
    std::optional<Megahertz> set{};  // empty: nothing was set in this tick
  };
  struct Row {
    WallTime time{};  // local time of the machine that wrote it, taken as UTC; whole seconds
    std::vector<Gpu> gpus;
    Duration work{};  // what the tick cost
  };
  std::string policy, machine;
  std::vector<Row> rows;
  bool cut_off = false;  // the last line is not whole, as in every log that was published
};

// Any number of GPUs. Lines of before and after the loop are skipped, but for policy and machine.
// Errors: bad_data naming FILE:LINE and the value; a last line without its end is only told.
Result<GeepafsLog> parse_geepafs_log(std::string_view text, std::string_view file);

// Where virtual time has no date: their scripts look for lines that begin with 202.
inline constexpr WallTime kPublishedBegin{std::chrono::sys_days(std::chrono::year_month_day(
    std::chrono::year(2020), std::chrono::January, std::chrono::day(1)))};

// One policy's jobs of one repetition after the other, `begin` the first instant of the first, with
// `gap` between two.
struct PublishedRun {
  std::string policy;
  std::vector<StoredJob> jobs;  // with their ticks
  WallTime begin = kPublishedBegin;
  Duration gap{};
};

std::string dvfs_out(const PublishedRun& run);       // dvfs_POLICY.out
std::string all_apps_out(const PublishedRun& run);   // allApps_POLICY_Niter.out
std::string processed_csv(const PublishedRun& run);  // processed_POLICY.csv
std::string avg_iter_csv(const PublishedRun& run);   // avgIter_POLICY.csv

}  // namespace derate
