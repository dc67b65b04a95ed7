#include "lab/launch_feed.h"

#include <algorithm>

namespace derate {
namespace {

// The work in a launch changes in steps of so much work, at fixed places: what is launched after
// some work does not depend on how often that was looked at.
constexpr double kCell = 0.01;  // s

bool phases_end(const Workload& workload) {
  return std::all_of(workload.phases.begin(), workload.phases.end(),
                     [](const Phase& phase) { return phase.work > Duration{}; });
}

void add(LaunchCounts& to, const LaunchCounts& counts) {
  for (const auto& [id, count] : counts) to[id] += count;
}

// If each launch stands for the same work and phases have the same length, each phase has
// launched what was done in it. A mix whose last phase never ends has one recording.
LaunchCounts launched(std::span<const LaunchRecording* const> by_phase, const Workload& workload,
                      Duration done) {
  if (workload.phases.size() < 2 || !phases_end(workload))
    return launches_after(*by_phase[0], done);
  Duration period{};
  for (const Phase& phase : workload.phases) period += phase.work;
  LaunchCounts out;
  const std::int64_t rounds = done / period;
  Duration rest = done % period;
  for (std::size_t i = 0; i < workload.phases.size(); ++i) {
    const Duration work = workload.phases[i].work;
    const Duration now = std::min(rest, work);
    rest -= now;
    add(out, launches_after(*by_phase[i % by_phase.size()], rounds * work + now));
  }
  return out;
}

}  // namespace

LaunchCounts LaunchFeed::at(const Workload& workload, Duration done) {
  if (work_.steady() && !workload.change && workload.spread.share == 0)
    return launched(by_phase_, workload, done);
  advance(workload, seconds(done));
  LaunchCounts out;
  for (std::size_t i = 0; i < recorded_by_phase_.size(); ++i)
    if (recorded_by_phase_[i] > 0)
      add(out,
          launches_after(*by_phase_[i % by_phase_.size()], from_seconds(recorded_by_phase_[i])));
  return out;
}

void LaunchFeed::advance(const Workload& workload, double done_s) {
  recorded_by_phase_.resize(workload.phases.size());
  while (done_ < done_s) {
    const double begin = static_cast<double>(cell_) * kCell;
    const double end = static_cast<double>(cell_ + 1) * kCell;
    const double to = std::min(end, done_s);
    launch(workload, to - done_, (begin + end) / 2);
    done_ = to;
    if (done_ >= end) ++cell_;
  }
}

// `work_s` of the job's work is done around `at_s`.
void LaunchFeed::launch(const Workload& workload, double work_s, double at_s) {
  const double recorded = work_s / work_per_launch(work_, seed_, at_s);
  if (workload.change) {
    const double share = change_share(*workload.change, at_s);
    recorded_by_phase_[0] += (1 - share) * recorded;
    recorded_by_phase_[1] += share * recorded;
    return;
  }
  if (workload.phases.size() < 2 || !phases_end(workload)) {
    recorded_by_phase_[0] += recorded;
    return;
  }
  if (phase_ends_ < 0) phase_ends_ = phase_length(workload, 0);
  while (at_s >= phase_ends_) phase_ends_ += phase_length(workload, ++phase_);
  recorded_by_phase_[phase_ % workload.phases.size()] += recorded;
}

}  // namespace derate
