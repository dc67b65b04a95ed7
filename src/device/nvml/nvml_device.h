// A GPU read and set through NVML. Raw integers become quantities here and nowhere above.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/clock_control.h"
#include "device/nvml/gpm.h"
#include "device/nvml/nvml_calls.h"
#include "device/nvml/nvml_card.h"
#include "device/nvml/nvml_library.h"
#include "device/nvml/nvml_tenants.h"
#include "device/telemetry_source.h"

namespace derate {

class NvmlDevice final : public TelemetrySource, public ClockControl {
 public:
  // Opens the GPU at NVML's `index` and asks what it offers; what it cannot tell stays empty.
  // `clock` outlives the device. Errors: gpu_lost, no_permission, query_failed.
  static Result<std::unique_ptr<NvmlDevice>> open(std::shared_ptr<const NvmlLibrary> library,
                                                  int index, const Clock& clock);

  // The same for the GPU of that UUID, without a call to any other.
  // Errors: not_found, not_supported by old drivers, and those of open().
  static Result<std::unique_ptr<NvmlDevice>> open_uuid(std::shared_ptr<const NvmlLibrary> library,
                                                       const std::string& uuid, const Clock& clock);

  const Capability& capability() const override { return capability_; }
  std::shared_ptr<const DriverCosts> costs() const override { return costs_; }
  Result<Sample> read(const ReadPlan& plan) override;
  // Everything that computes or draws on the GPU, ascending by pid.
  Result<std::vector<GpuProcess>> processes() override;

  // With MIG one that may not see the instances is refused with no_permission; a process list that
  // is missing is an error without MIG only.
  Result<Tenancy> tenancy() override;

  // Each write makes sure first that the handle still is the GPU that was opened.
  Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) override;
  Result<void> reset_sm_clock() override;
  Result<void> lock_memory_clock(Megahertz lowest, Megahertz highest) override;
  Result<void> reset_memory_clock() override;
  Result<void> set_power_limit(Watts limit) override;
  Result<GpuSettings> settings() override;

 private:
  enum class MigLook : std::uint8_t { no, yes };  // whether the MIG mode is read, too
  struct Moment {
    Instant now;
    WallTime wall;
  };
  Moment moment() const { return {clock_.now(), clock_.wall_now()}; }
  Result<Sample> read_at(const Moment& moment, const ReadPlan& plan, MigLook look);
  Error with_xid(Error error, WallTime wall);
  void read_sensors(NvmlCalls& calls, Sample& sample) const;
  void read_energy(NvmlCalls& calls, Sample& sample);
  void read_modes_at_times(Sample& sample);
  bool is_counter_due(Instant now) const;
  bool is_mig_due(Instant now) const;
  std::optional<bool> look_at_mig(NvmlCalls& calls, Instant now);
  Result<void> check_identity() const;
  Result<void> check_supported(Megahertz clock) const;
  template <class... P, class... A>
  Result<void> write(const char* name, nvml::Return (*function)(P...), A... arguments);
  NvmlDevice(std::shared_ptr<const NvmlLibrary> library, nvml::Device device, const Clock& clock)
      : library_(std::move(library)), device_(device), clock_(clock), card_(library_, device_) {}

  std::shared_ptr<const NvmlLibrary> library_;
  nvml::Device device_;
  const Clock& clock_;
  Capability capability_;
  std::unique_ptr<Gpm> gpm_;  // null when the GPU has none
  std::optional<bool> mig_;   // as it was when the GPU was opened
  bool mig_changed_ = false;
  struct TimedLook {
    Instant taken{};
    Duration cost{};  // of CPU
  };
  std::optional<TimedLook> mig_look_;  // the last one
  std::shared_ptr<DriverCosts> costs_ = std::make_shared<DriverCosts>();
  struct ModesRead {
    SharedModes modes;  // empty: not read yet
    Instant taken{};
  };
  ModesRead modes_;
  NvmlCard card_;
  struct Counter {
    Joules energy{};
    Instant taken{};
  };
  std::optional<Counter> counter_;  // as tenancy() read it last
  bool works_ = true;               // as the last reading says
  UtilisationsSeen processes_seen_;
  Utilisations used_;  // as processes() read it last
  UsagePace processes_pace_{std::chrono::seconds(5)};
  std::unique_ptr<NvmlTenants> tenants_;  // null until the first request
};

// How many GPUs there are. Errors: query_failed.
Result<int> count_devices(const NvmlLibrary& library);

// Those of the UUIDs that are there more than once.
std::set<std::string> shared_uuids(std::vector<std::string> uuids);

// A GPU that is there and cannot be opened.
struct FailedGpu {
  int index;
  Error error;
};

struct NvmlDevices {
  std::vector<std::unique_ptr<NvmlDevice>> opened;
  std::vector<FailedGpu> failed;  // the others go on without them
};

// Opens every GPU of the machine, each on a thread of its own, so that one that hangs costs the
// others 10 s: it counts as failed, and its thread, which uses `clock`, is left behind. Ascending
// by index. GPUs that have the same UUID count as failed, too: nobody can say which of them a
// setting would reach. Errors: query_failed when they cannot even be counted.
Result<NvmlDevices> list_devices(const std::shared_ptr<const NvmlLibrary>& library,
                                 const Clock& clock);

}  // namespace derate
