// A session: one GPU, one policy, one repetition of all jobs. A job to warm up, then the others in
// their order, an idle gap before each, the policy running from the first instant to the last, as
// the published experiments had it. Here on a simulated GPU in virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/sim/sim_gpu.h"
#include "govern/governor.h"
#include "policy/policy.h"

namespace derate {

struct PolicyChoice {
  const PolicyInfo* info = nullptr;
  ParamValues params;
  std::string label;  // "geepafs"; with parameters where they differ from the default
};

// What stands in a job's way besides its GPU and its sensors.
struct Disturbance {
  double drift_kelvin = 0;               // the air gets that much warmer in ten minutes, and stays
  std::vector<const Workload*> tenants;  // endless jobs that share the GPU while a job runs
  Duration outsider_every{};             // another tool locks the highest clock; zero: never
};

struct SessionSpec {
  const SimChip* chip = nullptr;  // with the sensors as they are to be
  PolicyChoice policy;
  std::vector<const Workload*> jobs;          // in their order
  Duration work = std::chrono::seconds(120);  // of a job: reference seconds
  Duration warm_up = std::chrono::seconds(30);
  Duration idle = std::chrono::seconds(20);
  Duration idle_spread{};  // up to that much more before each job, and up to one second
  Disturbance disturbance;
  GovernorOptions governor;
  std::uint64_t seed = 1;  // the same seed, the same arrivals and sensor noise
};

// One tick, as a chart wants it.
struct Tick {
  float time_s = 0;  // since the job's start
  float clock_mhz = 0;
  float power_w = 0;                                         // in truth where it is known
  std::optional<float> asked_mhz;                            // empty: the GPU's own choice
  std::optional<float> gpu_utilisation, memory_utilisation;  // as sensors show
  bool probing = false;
};

// Why, from this tick on.
struct Remark {
  std::uint32_t tick = 0;
  std::string text;
};

// What a job did, in truth unless said otherwise; start-up and probing included.
struct JobRecord {
  std::string app;
  std::string error;  // empty: it ended as it should
  Duration time{};
  double work = 0;                      // reference seconds; the work's own unit where it is real
  Joules energy{};                      // of the whole GPU
  std::optional<Joules> sensed_energy;  // by the GPU's own counter
  Duration probing{};                   // at clocks that were set to learn from
  int clock_changes = 0;                // writes that succeeded
  Duration policy_cpu{};                // what deciding cost
  Celsius temperature_at_start{};
  std::vector<Tick> ticks;
  std::vector<Remark> remarks;
};

struct SessionRecord {
  std::vector<JobRecord> jobs;  // in the order of the spec, the warm-up left out
  Duration simulated{};
};

// Errors: those of the policy's creation. A job that makes no progress is recorded as failed, and
// ends the session: the later ones are recorded as not run.
Result<SessionRecord> run_session(const SessionSpec& spec);

}  // namespace derate
