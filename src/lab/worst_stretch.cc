#include "lab/worst_stretch.h"

#include <algorithm>
#include <vector>

namespace derate {
namespace {

struct DoneAt {
  double time_s = 0, done_s = 0;
};

// The chip's clock that is nearest: ticks are kept in tenths of a MHz.
std::size_t clock_index(const SimChip& chip, double mhz) {
  const auto& clocks = chip.sm_clocks;
  const auto above = std::lower_bound(clocks.begin(), clocks.end(), Megahertz(mhz));
  if (above == clocks.begin()) return 0;
  const auto at = static_cast<std::size_t>(above - clocks.begin());
  if (above == clocks.end()) return at - 1;
  return clocks[at].value() - mhz < mhz - clocks[at - 1].value() ? at : at - 1;
}

// Reference seconds a second.
double work_rate(const Workload& workload, std::size_t clock, double done_s) {
  const double first = workload.phases.front().points[clock].rate;
  if (!workload.change) return first;
  const double share = change_share(*workload.change, done_s);
  return (1 - share) * first + share * workload.phases.back().points[clock].rate;
}

std::vector<DoneAt> progress_of(const JobRecord& job, const Workload& workload,
                                const SimChip& chip) {
  std::vector<DoneAt> out(1);
  for (const Tick& tick : job.ticks) {
    const DoneAt& before = out.back();
    const double rate = work_rate(workload, clock_index(chip, tick.clock_mhz), before.done_s);
    const double length = tick.time_s - before.time_s;
    out.push_back({tick.time_s, before.done_s + rate * length});
  }
  return out;
}

}  // namespace

std::optional<double> worst_stretch_loss(const JobRecord& job, const Workload& workload,
                                         const SimChip& chip, Duration stretch) {
  if (workload.phases.size() > 1 && !workload.change) return std::nullopt;
  if (workload.phases.front().gap > Duration{}) return std::nullopt;
  const std::vector<DoneAt> at = progress_of(job, workload, chip);
  std::optional<double> worst;
  std::size_t from = 0;
  for (const DoneAt& to : at) {
    while (from + 1 < at.size() && to.done_s - at[from + 1].done_s >= seconds(stretch)) ++from;
    const double done = to.done_s - at[from].done_s;
    if (done < seconds(stretch)) continue;
    worst = std::max(worst.value_or(0), 1 - done / (to.time_s - at[from].time_s));
  }
  return worst;
}

}  // namespace derate
