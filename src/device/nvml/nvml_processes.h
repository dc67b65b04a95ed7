// The processes on a GPU as NVML lists them, and how much of its time each used.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/sample.h"
#include "device/nvml/nvml_calls.h"
#include "device/nvml/nvml_library.h"

namespace derate {

// Where a list is asked: the GPU, or a MIG device, whose processes then are of that instance.
struct ProcessPlace {
  nvml::Device device;
  std::optional<unsigned int> gpu_instance;
};

// Everything that computes or draws on the GPU, ascending by pid, a row each. With MIG
// `gpu_instance` is empty for one on several instances. Errors: not_supported when the driver lists
// neither kind, and what NVML says when one of the lists cannot be read.
Result<std::vector<GpuProcess>> list_processes(const NvmlLibrary& library, nvml::Device device,
                                               bool mig);

// The same of the instances, with a row for each instance that a process is on.
Result<std::vector<GpuProcess>> list_processes_by_instance(const NvmlLibrary& library,
                                                           std::span<const ProcessPlace> places);

// Whether the driver lists them, and how many of them compute.
bool lists_processes(NvmlCalls& calls, const NvmlFunctions& nvml, nvml::Device device);
std::optional<int> count_computing(NvmlCalls& calls, const NvmlFunctions& nvml,
                                   nvml::Device device);

struct Utilisations {
  struct Used {
    Fraction sm, memory;
  };
  // The driver answered: who is not below did nothing. (With MIG it does not.)
  bool answered = false;
  std::map<std::int64_t, std::optional<Used>> by_pid;  // empty: not known, of all that it named
};

// State of readings of utilisation, kept from one to the next.
struct UtilisationsSeen {
  unsigned long long time_us = 0;   // the newest sample's, on NVML's clock: the time of day
  std::set<unsigned int> unlisted;  // sampled at the last reading, and in no list
};

// Reads the driver's newest sample of each process since `seen`, which becomes the newest sample's
// time; 0: all that the driver kept, some seconds. A process that has stopped since `seen` keeps
// its last sample, which then stands for the time between two readings. Samples later than `now` or
// before the requested time are garbage. If `seen` is later than `now`, the clock went back: `seen`
// is reset.
Utilisations read_utilisations(const NvmlFunctions& nvml, nvml::Device device, WallTime now,
                               UtilisationsSeen& seen);
// When the utilisation of processes is worth its cost. If one process alone is listed and nobody
// else is sampled, the GPU's utilisation is its own.
class UsagePace {
 public:
  // `every`: no sooner than that after the last reading, but for one process, which is looked at
  // each 10 s.
  explicit UsagePace(Duration every = {}) : every_(every) {}
  // Of a list of so many, for each time that they might be read.
  bool is_due(std::size_t listed, const UtilisationsSeen& seen, Instant now);
  // Before a reading. After times that were passed over the samples of the last second count.
  void begin(UtilisationsSeen& seen, Instant now, WallTime wall);

 private:
  Duration every_;
  std::optional<Instant> read_;
  bool passed_over_ = false;  // since then
};

// Fills in the utilisation of each process. A process without a sample did nothing. If processes
// that are in no list are sampled repeatedly, list and samples belong to different PID namespaces,
// and processes without a sample stay unknown.
void put_utilisations(const Utilisations& used, UtilisationsSeen& seen,
                      std::vector<GpuProcess>& processes);

}  // namespace derate
