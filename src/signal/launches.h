// Kernel launches of a process on a GPU as a signal of its work: its progress
// (model/launch_phases.h) and its launches per second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/progress.h"
#include "model/launch_phases.h"

namespace derate {

// As a process has counted it since it began.
struct GpuLaunches {
  std::string uuid;      // as NVML writes it: "GPU-..."; of a MIG instance, its 16 bytes so written
  LaunchCounts kernels;  // by kernel; 0: all that had no room
  std::uint64_t collectives = 0;  // launches of them, as far as kernels' names tell
  std::uint64_t waits = 0, copies = 0;
};

// Over a window of some seconds.
struct LaunchRate {
  KernelMix mix;
  double per_second = 0;
  std::uint64_t collectives = 0;  // since the process began
  Instant time{};                 // the window's end
};

// A process on a GPU at the end of a window.
struct LaunchProgress {
  std::int64_t pid = 0;
  std::uint32_t uid = 0;
  std::uint64_t started = 0;  // start of the process in clock ticks since boot; 0: not known
  std::string gpu;            // UUID; empty: the GPU on which the process works
  bool only_gpu = false;      // the process launches on this GPU only
  Instant time{};
  // Empty: it launches nothing, or what does not count its work.
  std::optional<LaunchState> state;
};

// Of a state that counts work.
Progress progress_of(const LaunchState& state, Instant time);

// "kernels 2"; the first phase has no name: most work has only one.
std::string launch_phase_name(int phase);

// What one process launches on one GPU.
class LaunchCount {
 public:
  // What has become known of its work, of any process and GPU; empty: nothing new.
  std::optional<LaunchProgress> add(Instant now, const LaunchCounts& counts);
  // Over the window that ends; empty: it only begins, nothing was launched, or it is another
  // program's count.
  std::optional<LaunchRate> end_window(Instant end, const GpuLaunches& counted);
  // The process was not read as its window ended: the next one begins anew.
  void forget_window() { begin_.reset(); }

 private:
  LaunchPhases phases_;
  bool counted_work_ = false;                                // when there was last something new
  std::optional<std::pair<Instant, LaunchCounts>> begin_{};  // of the window
};

}  // namespace derate
