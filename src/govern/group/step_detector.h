// Detector of the GPUs that go in step (synchronous training), from their processes, launches and
// activity, without help of the job. They do when one job works on them, one process on each, and
// what it does there goes at one speed, whatever the clocks:
//
// - One job: one user's processes that are one (pid) or that one process has started, be it by way
//   of others: the nearest one counts, so that two jobs of one shell are two. Else those of one
//   session and process group, or of one batch job. A GPU with two processes is none's alone.
// - In step: where launches are known of each, what launch_windows.h makes of them: for kJoinAfter
//   they have launched as many collectives; without any, those of one process, of one process
//   group or of one batch job at rates that are one for half a minute.
// - Where launches are known of none: only where it is one process on all of them, and they are
//   busy alike (kBusyDiffers) for kJoinByActivityAfter. Several processes of one session are
//   often independent trials, which counters do not tell from one job: they are not grouped.
// - Where they are known of some: they are not in step.
//
// All GPUs of a job are one unit, or none is: then they may wait for each other all the same, as
// those whose exchange is hidden in CUDA graphs. A unit ends at once when its processes are others,
// and kLeaveAfter after they have become unlike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/gpu_process.h"
#include "govern/group/launch_windows.h"
#include "govern/group/pace.h"

namespace derate {

// Of one GPU at one look.
struct StepEvidence {
  std::size_t gpu = 0;
  std::vector<ProcessFacts> processes;  // that have a context on it
  std::string batch_job;                // of its process; empty: none
  std::optional<LaunchRate> launches;   // empty: not known
  Estimate estimate;
};

// A GPU of a unit that is slower by itself.
struct Straggler {
  std::size_t gpu = 0;
  std::string why;

  bool operator==(const Straggler&) const = default;
};

struct StepGroup {
  std::uint64_t number = 0;  // for WorkStatus::step_group; none is given twice
  std::vector<std::size_t> gpus;
  std::optional<Straggler> straggler;
};

struct StepLook {
  std::vector<StepGroup> in_step;
  std::vector<std::size_t> may_wait;  // GPUs of a job that has others, not known to go in step
};

class StepDetector {
 public:
  static constexpr Duration kJoinAfter = std::chrono::seconds(10);
  static constexpr Duration kJoinByActivityAfter = std::chrono::seconds(30);
  static constexpr Duration kLeaveAfter = std::chrono::seconds(5);
  static constexpr double kBusyDiffers = 0.1;

  // What is seen at that time of each GPU, once each; about once a second. The units as they are
  // believed now.
  StepLook update(Instant now, std::span<const StepEvidence> seen);

 private:
  // A GPU and the process on it.
  struct Place {
    std::size_t gpu = 0;
    ProcessId process;

    bool operator==(const Place& other) const {
      return gpu == other.gpu && is_same_process(process, other.process);
    }
  };
  struct Job {
    std::vector<Place> places;
    std::optional<Instant> alike_since, unlike_since;
    std::uint64_t number = 0;  // 0: not in step
    PaceMeans means;
    PaceMeans of_unit;  // since it is one: before, its processes start and wait for each other
    LaunchWindows windows;
    LaunchWindows::Verdict verdict = LaunchWindows::Verdict::apart;  // of the last of them
  };

  static bool is_alike(Job& job, std::span<const StepEvidence* const> of_job);

  void judge(Job& job, Instant now, std::span<const StepEvidence* const> of_job);

  std::vector<Job> jobs_;
  std::uint64_t last_number_ = 0;
};

// The one of the GPUs that is slower than each of the others at the same asked clock: lower in its
// clock by kLower, or else busier by more than kBusier. Empty: none, or not for kPaceMemory yet.
std::optional<Straggler> find_straggler(const PaceMeans& means,
                                        std::span<const PaceReading> readings);

}  // namespace derate
