#include "gpus.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <thread>

#include "base/text.h"
#include "core/gpu_id.h"
#include "device/nvml/nvml_device.h"
#include "device/nvml/nvml_thread.h"

namespace derate::cli {

namespace {

struct Driver {
  std::shared_ptr<const NvmlLibrary> library;
  NvmlDevices devices;
};

Result<Driver> start_driver(const Clock& clock) {
  Driver out;
  out.library = TRY(NvmlLibrary::load());
  out.devices = TRY(list_devices(out.library, clock));
  return out;
}

// Loading the library and opening the GPUs can hang like any driver call; many GPUs take seconds.
// A start that hangs is left behind on its thread.
Result<Driver> start_driver_in_time() {
  constexpr std::chrono::seconds kDeadline(30);
  static const SystemClock clock;  // outlives a start that is left behind
  auto promise = std::make_shared<std::promise<Result<Driver>>>();
  auto started = promise->get_future();
  std::thread([promise] { promise->set_value(start_driver(clock)); }).detach();
  if (started.wait_for(kDeadline) == std::future_status::ready) return started.get();
  return Error{Errc::gpu_stuck,
               fmt::format("the NVIDIA driver has not answered for {} s: a GPU may "
                           "hang; dmesg may tell which",
                           kDeadline.count())};
}

}  // namespace

Result<OpenGpus> open_nvml_gpus(const std::string& choice) {
  Driver driver = TRY(start_driver_in_time());
  NvmlDevices& devices = driver.devices;
  OpenGpus out;
  out.driver_version = driver.library->driver_version().value_or("");
  for (const FailedGpu& failed : devices.failed)
    out.notes.push_back(fmt::format("GPU {}: {}", failed.index, failed.error.message));
  if (devices.opened.empty()) {
    if (!devices.failed.empty()) return std::move(devices.failed.front().error);
    return Error{Errc::not_found, "the driver is loaded but there is no NVIDIA GPU"};
  }
  std::vector<GpuId> ids;
  for (const auto& device : devices.opened) ids.push_back(device->capability().id);
  for (const int at : TRY(select_gpus(ids, choice))) {
    OpenGpu gpu;
    gpu.source = TRY(NvmlSource::create(std::move(devices.opened[static_cast<std::size_t>(at)])));
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

Result<SimSetup> find_sim_setup(const SimOptionsOfCli& options) {
  SimSetup out;
  out.chip = TRY(find_sim_chip(options.chip));
  if (options.data.empty() && !options.workload.empty()) {
    out.workload = TRY(find_workload(*out.chip, options.workload));
    return out;
  }
  auto all = options.data.empty() ? TRY(built_in_workloads(*out.chip))
                                  : TRY(load_workload_tables(options.data, *out.chip));
  std::string known;
  for (Workload& workload : all) {
    if (options.workload.empty() || to_lower(workload.name) == to_lower(options.workload)) {
      out.workload = std::move(workload);
      return out;
    }
    known += known.empty() ? "" : ", ";
    known += workload.name;
  }
  return Error{Errc::not_found, fmt::format("{} has no workload '{}'; there are: {}", options.data,
                                            options.workload, known)};
}

Result<OpenGpus> open_sim_gpus(const SimSetup& setup, const SimOptionsOfCli& options,
                               const std::string& choice, Clock& clock) {
  std::vector<GpuId> ids;
  for (int i = 0; i < options.gpus; ++i) ids.push_back(sim_capability(*setup.chip, i).id);
  OpenGpus out;
  out.driver_version = "simulated";
  for (const int i : TRY(select_gpus(ids, choice))) {
    const auto seed = static_cast<std::uint64_t>(options.seed + i);
    OpenGpu gpu;
    gpu.sim = std::make_unique<SimGpu>(*setup.chip, SimOptions{.seed = seed});
    auto device = std::make_unique<SimDevice>(*gpu.sim, clock, i, seed);
    gpu.control = device.get();
    gpu.source = std::move(device);
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

}  // namespace derate::cli
