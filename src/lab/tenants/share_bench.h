// The judge of how a GPU's power is split among processes: share_worlds() and drawn ones, ours
// against the driver's utilisation alone on the same base and context.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "lab/tenants/attribution.h"
#include "lab/tenants/share_world.h"

namespace derate {

// Of one method in one run. Shares are of the energy above base.
struct ShareScore {
  StretchScore ticks;                    // after 5 minutes
  StretchScore bill;                     // each process's energy of the whole run
  double to_parked_j = 0;                // beyond the context, to processes that did not work
  std::int64_t banded = 0, covered = 0;  // as AttributionScore
};

struct ShareRun {
  ShareScore online, sm_share;
};

struct ShareBench {
  std::vector<ShareWorldSpec> worlds;
  std::uint64_t first_seed = 1;
  int seeds = 5;
  unsigned threads = 0;  // 0: as many as there are cores
};

struct ShareWorldResult {
  std::string world;
  std::vector<ShareRun> runs;  // by seed

  // Means of the runs.
  double tick() const;
  double bill() const;
  double tick_of_sm_share() const;
  double bill_of_sm_share() const;
  double to_parked() const;  // of the energy above base
  std::optional<double> coverage() const;
  bool is_above_sm_share() const;  // its bill, by more than the bar allows
  // Of the single run where our bill is farthest above sm-share's.
  double most_above() const;
};

struct ShareBar {
  std::string text;  // with the figure and the limit
  bool met = false;
};
// The bars over all these worlds, at least one: ticks, bills, single runs, bands, parked contexts.
std::vector<ShareBar> judge_share_bars(const std::vector<ShareWorldResult>& results);

ShareRun judge_shares(const ShareWorldSpec& spec, std::uint64_t seed);

// The same results whatever the threads. Fewer worlds than the bench has: it was stopped. `watch`
// waits a moment; `done` is how many runs are done; false: no run is begun any more.
Result<std::vector<ShareWorldResult>> run_share_bench(
    const ShareBench& bench, const std::function<bool(std::size_t done)>& watch = {});

}  // namespace derate
