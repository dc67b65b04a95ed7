#include "device/nvml/nvml_backend.h"

#include <utility>

#include "base/text.h"
#include "device/nvml/mig_topology.h"
#include "device/nvml/nvml_device.h"

namespace derate {
namespace {

// Outlives every thread that is left behind in the driver.
const Clock& process_clock() {
  static const SystemClock clock;
  return clock;
}

Result<std::string> without_instances(const NvmlLibrary& library, const std::string& choice) {
  std::string out;
  for (const std::string_view item : split(choice, ',')) {
    const std::string name(trim(item));
    if (!out.empty()) out += ',';
    out += name.starts_with("MIG-") ? TRY(gpu_of_mig_device(library, name)) : name;
  }
  return out;
}

// Fills `devices` with the GPUs of the machine.
Result<FoundGpus> list_gpus(NvmlDevices& devices, const std::string& choice) {
  const auto library = TRY(NvmlLibrary::load());
  devices = TRY(list_devices(library, process_clock()));
  FoundGpus out;
  out.driver_version = library->driver_version().value_or("");
  for (const FailedGpu& failed : devices.failed) out.notes.push_back(failed.error.message);
  if (devices.opened.empty()) {
    if (!devices.failed.empty()) return std::move(devices.failed.front().error);
    return Error{Errc::not_found, "the driver is loaded but there is no NVIDIA GPU"};
  }
  std::vector<GpuId> ids;
  for (const auto& device : devices.opened) ids.push_back(device->capability().id);
  for (const int at : TRY(select_gpus(ids, TRY(without_instances(*library, choice)))))
    out.ids.push_back(ids[static_cast<std::size_t>(at)]);
  return out;
}

Result<OpenGpu> open_gpu(NvmlDevices& devices, const GpuId& id, NvmlPatience patience) {
  for (auto& device : devices.opened) {
    if (device == nullptr || device->capability().id != id) continue;
    ClockControl* control = device.get();
    auto source = TRY(NvmlSource::create(std::move(device), control, patience));
    OpenGpu out;
    out.control = source.get();
    out.source = std::move(source);
    return out;
  }
  return Error{Errc::not_found, id.uuid + ": no such GPU"};
}

}  // namespace

Backend nvml_backend(NvmlPatience patience) {
  // Only an opened GPU says which one it is: those that nobody chose close with the back end.
  const auto devices = std::make_shared<NvmlDevices>();
  return {
      .name = "the NVIDIA driver",
      .capabilities = {.hardware = true},
      .list = [devices](const std::string& choice) { return list_gpus(*devices, choice); },
      .open = [devices, patience](const GpuId& id) { return open_gpu(*devices, id, patience); }};
}

Result<std::unique_ptr<ClockControl>> open_nvml_to_restore(const std::string& uuid) {
  return TRY(NvmlDevice::open_uuid(TRY(NvmlLibrary::load()), uuid, process_clock()));
}

}  // namespace derate
