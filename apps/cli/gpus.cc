#include "gpus.h"

#include <fmt/format.h>

#include "base/text.h"
#include "core/gpu_id.h"
#include "device/nvml/nvml_device.h"
#include "device/nvml/nvml_thread.h"

namespace derate::cli {

Result<OpenGpus> open_nvml_gpus(const std::string& choice, Clock& clock) {
  const auto library = TRY(NvmlLibrary::load());
  NvmlDevices devices = TRY(list_devices(library, clock));
  OpenGpus out;
  out.driver_version = library->driver_version().value_or("");
  for (const FailedGpu& failed : devices.failed)
    out.notes.push_back(fmt::format("GPU {}: {}", failed.index, failed.error.message));
  if (devices.opened.empty())
    return Error{Errc::not_found, devices.failed.empty()
                                      ? "the driver is loaded but there is no NVIDIA GPU"
                                      : "no GPU could be opened: " + out.notes.front()};
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

OpenGpus open_sim_gpus(const SimSetup& setup, const SimOptionsOfCli& options, Clock& clock) {
  OpenGpus out;
  out.driver_version = "simulated";
  for (int i = 0; i < options.gpus; ++i) {
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
