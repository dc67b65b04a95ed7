// A simulated GPU through the device interfaces. Reading runs the physics up to the clock's time.
#pragma once

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

class SimDevice final : public TelemetrySource, public ClockControl {
 public:
  // `gpu` and `clock` outlive the device. The GPU's time starts where the clock's stands at the
  // first read.
  SimDevice(SimGpu& gpu, Clock& clock, int index, std::uint64_t seed = 1);

  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan& plan) override;
  Result<std::vector<GpuProcess>> processes() override;
  Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) override;
  Result<void> reset_sm_clock() override;
  Result<void> set_power_limit(Watts limit) override;
  Result<GpuSettings> settings() override;

  SimFaults faults;

 private:
  void advance();
  Result<void> may_write();
  Sample make_sample(const ReadPlan& plan);

  SimGpu& gpu_;
  Clock& clock_;
  Capability capability_;
  Duration offset_{};  // the clock's time at the GPU's zero
  bool started_ = false;
  std::int64_t last_activity_window_ = 0;
  std::mt19937_64 random_;
  std::optional<Sample> last_;
};

}  // namespace derate
