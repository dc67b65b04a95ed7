// A GPU of a SimMachine, its settings, jobs, faults and samples: for sim_machine*.cc only.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "device/nvml/nvml_abi.h"
#include "device/sim/serving/serving_job.h"
#include "fakenvml/sim_machine.h"

namespace derate::fakenvml {

struct Job {
  std::uint64_t connection = 0;
  pid_t pid = 0;
  std::string process_name;
  SimGpu::TenantId tenant = 0;
  std::unique_ptr<ServingJob> engine = {};  // null: it is another workload
};

struct SimMachine::Gpu {
  Gpu(const SimChip& chip, int index, const MachineOptions& options);

  void advance_to(Duration now);
  void publish(GpuState& state);
  GpuIdentity identity() const;
  // As a GPU reset leaves it.
  void forget_settings();
  void set(GpuFault fault);
  void clear();
  // One of NVML's writes. `writes` is the caller's to count.
  nvml::Return write(const Request& request);
  void sample_processes();
  // MIG mode with these instances. Errors: as make_instances() has them.
  Result<void> partition(std::string_view layout);
  bool in_mig() const { return mig || sim.mig(); }

  SimGpu sim;
  int index;
  std::uint64_t epoch_us;
  std::uint64_t writes = 0;
  XidsNow xids = {};
  std::vector<Job> jobs;

  std::uint32_t memory_lowest_mhz = kNone, memory_highest_mhz = kNone;
  std::uint32_t locked_lowest_mhz = kNone, locked_highest_mhz = kNone;
  std::uint32_t application_sm_mhz = kNone, application_memory_mhz = kNone;
  std::uint32_t power_limit_mw;
  bool persistence = true;
  ModesNow modes = {};

  // `mig` is the fault: MIG mode without instances, and the jobs go on.
  bool lost = false, writes_ignored = false, absurd = false, mig = false;
  std::optional<GpuFault> counters;

 private:
  void sample_step();
  void sample_activity();
  nvml::Return lock(std::uint32_t lowest, std::uint32_t highest);
  nvml::Return lock_memory(std::uint32_t lowest, std::uint32_t highest);
  nvml::Return limit_power(std::uint32_t milliwatts);
  nvml::Return set_application_clocks(std::uint32_t memory, std::uint32_t sm);
  nvml::Return set_mig(std::uint32_t on);
  nvml::Return set_clock_offset(std::uint32_t clock, std::int32_t offset);
  nvml::Return update_profiles(std::uint32_t operation, std::uint32_t profiles);
  nvml::Return write_mode(const Request& request);
  GpuNow shown() const;
  GpuInstances shown_instances() const;
  void show_settings(GpuNow& out) const;
  std::uint32_t fault_bits() const;
  void spoil(GpuNow& out) const;
  std::uint64_t time_us() const;

  int partitions_ = 0;
  Duration step_, power_every_, utilisation_every_;
  Duration next_power_, next_utilisation_;
  std::int64_t last_window_ = 0;
  GpuNow sums_{};      // what is summed up: windows, known, sums, violations
  GpuNow at_fault_{};  // when the counters went wrong
  GpuSamples samples_{};
  GpuProcesses processes_{};
};

}  // namespace derate::fakenvml
