// The factory of concrete GPUs: a table of back ends (simulator, NVML), the choice of one by a
// program's options, and the opening of its GPUs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "dcgm_settings.h"
#include "device/clock_control.h"
#include "device/sim/sim_gpu.h"
#include "govern/fleet/open_gpu.h"
#include "options.h"

namespace derate::cli {

// How long a caller waits for a GPU. A loop over many GPUs reads a slow one again at its next tick.
enum class Patience : std::uint8_t { of_one, of_loop };
// Whether a simulated GPU works as soon as it is open, or when the caller starts its work.
enum class SimWorkload : std::uint8_t { at_once, later };

struct GpuRequest {
  std::string gpus;  // indices, UUIDs, bus ids, MIG instances; empty: all
  SimCliOptions sim;
  Patience patience = Patience::of_one;
  SimWorkload workload = SimWorkload::at_once;
  // Null: the activity of GPUs without GPM is not read.
  std::shared_ptr<DcgmConnection> dcgm = {};
  // Called now and then while a driver is waited for.
  std::function<void()> alive = [] {};
};

// What the back end of these options is like.
BackendCapabilities backend_capabilities(const SimCliOptions& sim);

// The GPUs that `request` names, in its order. `clock` outlives them.
// Errors: those of the back end; gpu_stuck when the driver does not answer for 30 s; not_found when
// there is no GPU, or none of that name, no such chip or workload.
Result<OpenGpus> open_gpus(const GpuRequest& request, Clock& clock);

// How long see_gpus() waits. Opening takes seconds without persistence mode, as the first call to a
// GPU starts it.
struct SeePatience {
  Duration of_each = std::chrono::seconds(10);  // a GPU that takes longer has no names
  Duration of_all = std::chrono::seconds(30);
};
// The hardware GPUs that this process sees, by all their names. `alive` is called several times a
// second. Errors: those of NVML; gpu_stuck if the driver does not answer in time.
Result<SeenGpus> see_gpus(
    const SeePatience& patience = {}, const std::function<void()>& alive = [] {});

// GPUs with the clock that they are read on: virtual where they keep up with any, so that they are
// read as fast as they compute.
struct GpusOnClock {
  std::unique_ptr<FakeClock> virtual_time;
  SystemClock real_time;
  OpenGpus gpus;  // ends before its clock
  Clock& clock() { return virtual_time ? static_cast<Clock&>(*virtual_time) : real_time; }
};
Result<void> open_quickly(GpusOnClock& opened, const GpuRequest& request);

// Opens the real ones for a loop that cannot wait: on a thread of its own, which is left behind
// when the driver hangs.
OpenFleet open_real_fleet(const Settings& settings, const Log& log);

// One real GPU, opened on the calling thread without a call to any other: for a process that may
// hang.
Result<std::unique_ptr<KnobControl>> open_to_restore(const DomainId& domain);

// The chip and workload of these options. Errors: those of open_sim_chip(); not_found for the
// workload, or where the chip has none.
struct SimSetup {
  std::optional<SimChip> chip;
  Workload workload;
};
Result<SimSetup> find_sim_setup(const SimCliOptions& options);

}  // namespace derate::cli
