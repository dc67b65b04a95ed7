// A scenario: GPUs, work, faults and a policy in virtual time. README.md has the file's keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/sim/sim_chip.h"
#include "device/sim/sim_device.h"

namespace derate {

struct ScenarioWork {
  Instant at{};
  std::string workload;  // empty: what runs is stopped
  Duration work{};       // reference work; zero: endless
};

struct ScenarioFault {
  bool SimFaults::*kind = nullptr;
  Instant from{}, to{};
};

struct ScenarioGpu {
  std::vector<ScenarioWork> work;  // in order of time
  std::vector<ScenarioFault> faults;
};

struct Scenario {
  SimChip chip;
  std::vector<ScenarioGpu> gpus;
  std::string policy;
  std::vector<std::string> params;  // "delta=0.05"
  Duration duration{};
  std::uint64_t seed = 1;
  bool dry_run = false;
};

// Errors: bad_data naming FILE:LINE and the key.
Result<Scenario> load_scenario(const std::string& path);

// Runs it and sums it up: what was decided when and why, what it came to, and how it was left.
// Errors: those of the policy and the workloads.
Result<nlohmann::ordered_json> run_scenario(const Scenario& scenario);

}  // namespace derate
