// A simulated GPU through the device interfaces. Reading runs the physics up to the clock's time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>

#include "base/clock.h"
#include "device/clock_control.h"
#include "device/sim/sim_gpu.h"
#include "device/telemetry_source.h"

namespace derate {

// What goes wrong, switched by a test or a scenario.
struct SimFaults {
  bool gpu_lost = false;        // every call fails
  bool no_permission = false;   // writes are refused
  bool writes_ignored = false;  // writes succeed and do nothing
};

// What the counters of tenants get wrong.
struct SimCounterErrors {
  double noise = 0.003;         // of each reading, relative, sd: assumed
  std::map<int, double> scale;  // by GPU instance: A100s under MIG showed 0.33 to 1.29 of the truth
};

class SimDevice final : public TelemetrySource, public ClockControl {
 public:
  // `gpu` and `clock` outlive the device. The GPU's time starts where the clock's stands at the
  // first read.
  SimDevice(SimGpu& gpu, Clock& clock, int index, std::uint64_t seed = 1);

  const Capability& capability() const override { return capability_; }
  std::shared_ptr<const DriverCosts> costs() const override { return costs_; }
  // From now on costs() says so many times what the calls of an H200's driver take. The calls
  // themselves take nothing. Before a sampler is made of it.
  void charge_as_h200(double times);
  Result<Sample> read(const ReadPlan& plan) override;
  Result<std::vector<GpuProcess>> processes() override;
  Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) override;
  Result<void> reset_sm_clock() override;
  Result<void> lock_memory_clock(Megahertz lowest, Megahertz highest) override;
  Result<void> reset_memory_clock() override;
  Result<void> set_power_limit(Watts limit) override;
  Result<GpuSettings> settings() override;

  // The jobs as processes with numbers below 0, which no process of this machine has.
  Result<Tenancy> tenancy() override;

  SimFaults faults;
  SimCounterErrors counter_errors;

 private:
  void advance();
  Result<void> may_write();
  Sample make_sample(const ReadPlan& plan);
  Activity activity_since(const PartCounters& now, PartCounters& before, double scale);
  std::vector<GpuInstance> read_instances();
  std::vector<GpuProcess> read_processes();

  // Where the readers of tenancy() were at their last asking.
  struct Asked {
    PartCounters board;
    std::map<std::string, PartCounters> instances;  // by UUID
    struct Used {
      double sm = 0, memory = 0;  // s
    };
    std::map<SimGpu::TenantId, Used> jobs;
    std::optional<Instant> time;
  };

  SimGpu& gpu_;
  Clock& clock_;
  Capability capability_;
  std::shared_ptr<const DriverCosts> costs_;  // null: calls cost nothing
  SharedModes modes_;                         // of the chip; nobody changes them
  Duration offset_{};                         // the clock's time at the GPU's zero
  bool started_ = false;
  std::int64_t last_activity_window_ = 0;
  std::mt19937_64 random_;
  std::optional<Sample> last_;
  Asked asked_;
  std::mt19937_64 counter_random_;
};

}  // namespace derate
