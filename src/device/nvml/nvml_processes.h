// The processes on a GPU as NVML lists them, and how much of its time each used.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
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

// The driver's mean for each process since `seen_us`, which becomes the newest sample's time on
// NVML's clock; from 0 over what the driver kept, some seconds.
Utilisations read_utilisations(const NvmlFunctions& nvml, nvml::Device device,
                               unsigned long long& seen_us);

}  // namespace derate
