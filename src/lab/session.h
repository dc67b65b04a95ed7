// A session: one GPU, one policy, one repetition of all jobs. A job to warm up, then the others in
// their order, an idle gap before each, the policy running from the first instant to the last, as
// the published experiments had it. Here on a simulated GPU in virtual time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/job_record.h"
#include "device/replay/launch_recording.h"
#include "device/replay/launch_work.h"
#include "device/sim/sim_gpu.h"
#include "govern/governor.h"
#include "lab/power_cap.h"
#include "policy/policy.h"

namespace derate {

struct PolicyChoice {
  const PolicyInfo* info = nullptr;
  ParamValues params;
  std::string label;  // "geepafs"; with parameters where they differ from the default
  // All jobs are run so often, the policy made anew each time with the models of work that it has
  // kept; only the last run counts. 1: nothing is kept.
  int run = 1;
};

// Another tool that holds a clock at the begin of each job, whatever the policy requests.
struct HeldClock {
  Duration lasts{};     // zero: never
  double share = 0.75;  // of the highest clock
};

// What stands in a job's way besides its GPU and its sensors.
struct Disturbance {
  double drift_kelvin = 0;    // the air gets that much warmer in ten minutes, and stays
  Duration outsider_every{};  // another tool locks the highest clock; zero: never
  HeldClock held;
  PowerCap power_cap;  // of all GPUs
};

struct SessionJob {
  const Workload* workload = nullptr;
  std::vector<const Workload*> tenants = {};  // endless work that shares the GPU while it runs
  // What it launches as it is done at the highest clock, seen by the policy: its phases in turn, as
  // far as there are so many. None: nothing is seen.
  std::vector<const LaunchRecording*> launches = {};
};

struct SessionSpec {
  const SimChip* chip = nullptr;  // with the sensors as they are to be
  PolicyChoice policy;
  std::vector<SessionJob> jobs;               // in their order
  Duration work = std::chrono::seconds(120);  // of a job: reference seconds
  Duration warm_up = std::chrono::seconds(30);
  Duration idle = std::chrono::seconds(20);
  Duration idle_spread{};  // up to that much more before each job, and up to one second
  // Instead of these two: each job begins exactly so long after the one before has ended.
  std::optional<Duration> gap = {};
  Duration heartbeat_every{};  // the work says how far it is; zero: never
  bool dry_run = false;        // nothing is written
  bool in_step = false;        // a job's GPUs are governed as one unit (govern/group)
  double driver_cost = 0;      // the driver's CPU time, of an H200's; 0: calls cost nothing
  double slow_gpu = 0;         // of several GPUs the last is slower by so much, at any clock
  LaunchWork launch_work;      // of all jobs with launches
  Disturbance disturbance;
  GovernorOptions governor;
  std::uint64_t seed = 1;  // the same seed, the same arrivals and sensor noise
};

struct SessionRecord {
  std::vector<JobRecord> jobs;  // in the order of the spec, the warm-up left out
  Duration simulated{};
};

// Errors: those of the policy's creation. A job that makes no progress is recorded as failed, and
// ends the session: the later ones are recorded as not run.
Result<SessionRecord> run_session(const SessionSpec& spec);

}  // namespace derate
