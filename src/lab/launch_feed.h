// Launches of one job on one GPU of the lab as its work goes on: a recording for each phase of the
// work, and how much work one launch stands for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/replay/launch_recording.h"
#include "device/replay/launch_work.h"
#include "device/sim/sim_workload.h"

namespace derate {

class LaunchFeed {
 public:
  // `by_phase`: of the workload's phases in turn, at least one. `seed`: of what is random in
  // `work`.
  LaunchFeed(std::span<const LaunchRecording* const> by_phase, const LaunchWork& work,
             std::uint64_t seed)
      : by_phase_(by_phase.begin(), by_phase.end()), work_(work), seed_(seed) {}

  // Launches since the job began, when so much of it is done (work at the highest clock), which
  // grows from call to call. The workload is the same in each.
  LaunchCounts at(const Workload& workload, Duration done);

 private:
  void advance(const Workload& workload, double done_s);
  void launch(const Workload& workload, double work_s, double at_s);

  std::vector<const LaunchRecording*> by_phase_;
  LaunchWork work_;
  std::uint64_t seed_;
  double done_ = 0;                        // s
  std::uint64_t cell_ = 0;                 // of the grid of done work
  std::uint64_t phase_ = 0;                // its number since the job began
  double phase_ends_ = -1;                 // s; below 0: not known yet
  std::vector<double> recorded_by_phase_;  // s of the recording that have been launched
};

}  // namespace derate
