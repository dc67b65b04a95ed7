#include "device/nvml/nvml_backend.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/background_worker.h"
#include "core/gpu_selection.h"
#include "device/nvml/mig_topology.h"
#include "device/nvml/nvml_calls.h"
#include "device/nvml/nvml_device.h"

namespace derate {
namespace {

// Outlives every thread that is left behind in the driver.
const Clock& process_clock() {
  static const SystemClock clock;
  return clock;
}

// Replaces each MIG instance of the list by its GPU.
Result<std::string> without_instances(const NvmlLibrary& library, const std::string& choice) {
  GpuSelection list = TRY(parse_gpu_selection(choice));
  for (GpuName& name : list.names) {
    if (name.kind != GpuName::Kind::mig) continue;
    name.text = TRY(gpu_of_mig_device(library, name.text));
    name.kind = GpuName::Kind::uuid;
  }
  return to_string(list);
}

// Reads whether MIG mode is on and, if it is, the instances.
void see_instances(const NvmlLibrary& library, nvml::Device device, SeenGpu& out) {
  const NvmlFunctions& nvml = library.functions();
  if (nvml.mig_mode == nullptr) return;
  unsigned int mig = 0, pending = 0;
  const nvml::Return code = nvml.mig_mode(device, &mig, &pending);
  if (code != nvml::Return::success) {
    out.instances_unread = library.error(code, "nvmlDeviceGetMigMode").code != Errc::not_supported;
    return;
  }
  out.mig = mig != 0;
  if (!out.mig) return;
  const auto instances = list_mig_devices(library, device);
  out.instances_unread = !instances.ok();
  if (!instances.ok()) return;
  for (const MigDevice& each : *instances)
    out.instances.push_back(
        {each.uuid, static_cast<int>(each.gpu_instance), static_cast<int>(each.compute_instance)});
}

// Queries names only. Errors: those of the handle and the UUID.
Result<SeenGpu> see_gpu(const NvmlLibrary& library, int index) {
  const NvmlFunctions& nvml = library.functions();
  nvml::Device device = nullptr;
  char uuid[nvml::kUuidSize] = {}, name[nvml::kNameSize] = {};
  nvml::PciInfo pci{};
  unsigned int minor = 0;
  nvml::Return code = nvml.device_by_index(static_cast<unsigned int>(index), &device);
  if (code != nvml::Return::success) return library.error(code, "nvmlDeviceGetHandleByIndex_v2");
  code = nvml.uuid(device, uuid, nvml::kUuidSize);
  if (code != nvml::Return::success) return library.error(code, "nvmlDeviceGetUUID");
  SeenGpu out;
  out.id.index = index;
  out.id.uuid = buffer_text(uuid);
  NvmlCalls calls(library);
  if (calls.ok("nvmlDeviceGetName", nvml.name, device, name, nvml::kNameSize))
    out.id.name = buffer_text(name);
  if (calls.ok("nvmlDeviceGetPciInfo_v3", nvml.pci_info, device, &pci))
    out.id.pci_bus_id = buffer_text(pci.bus_id);
  if (calls.ok("nvmlDeviceGetMinorNumber", nvml.minor_number, device, &minor))
    out.minor = static_cast<int>(minor);
  see_instances(library, device, out);
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

void silence_shared(SeenGpus& seen) {
  std::vector<std::string> uuids;
  for (const SeenGpu& gpu : seen.gpus) uuids.push_back(gpu.id.uuid);
  const auto shared = shared_uuids(std::move(uuids));
  std::erase_if(seen.gpus, [&](const SeenGpu& gpu) {
    if (!shared.contains(gpu.id.uuid)) return false;
    seen.silent.push_back(gpu.id.index);
    return true;
  });
  std::sort(seen.silent.begin(), seen.silent.end());
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

Result<SeenGpus> see_nvml_gpus(const std::shared_ptr<const NvmlLibrary>& library,
                               Duration patience) {
  const int count = TRY(count_devices(*library));
  // Each GPU has its own thread: a GPU that hangs does not block the names of the others.
  std::vector<std::future<Result<SeenGpu>>> pending;
  for (int index = 0; index < count; ++index) {
    auto promise = std::make_shared<std::promise<Result<SeenGpu>>>();
    pending.push_back(promise->get_future());
    start_thread([promise, library = library, index]() mutable {
      auto seen = see_gpu(*library, index);
      library.reset();  // the caller closes it, not this thread
      promise->set_value(std::move(seen));
    });
  }
  SeenGpus out;
  const SystemClock clock;
  const Instant end = clock.now() + patience;
  for (int index = 0; index < count; ++index) {
    auto& answer = pending[static_cast<std::size_t>(index)];
    const Duration left = std::max(Duration{}, end - clock.now());
    auto gpu = answer.wait_for(left) == std::future_status::ready
                   ? answer.get()
                   : Error{Errc::gpu_stuck, "does not answer"};
    if (gpu.ok())
      out.gpus.push_back(*std::move(gpu));
    else if (gpu.error().code != Errc::no_permission)
      out.silent.push_back(index);
  }
  silence_shared(out);
  out.driver = library;
  return out;
}

namespace {

Result<SeenGpus> load_and_see(Duration patience) {
  const auto library = TRY(NvmlLibrary::load());
  return see_nvml_gpus(library, patience);
}

}  // namespace

Backend nvml_backend(NvmlPatience patience) {
  // Only an opened GPU says which one it is: those that nobody chose close with the back end.
  const auto devices = std::make_shared<NvmlDevices>();
  return {
      .name = "the NVIDIA driver",
      .capabilities = {.hardware = true},
      .see = load_and_see,
      .list = [devices](const std::string& choice) { return list_gpus(*devices, choice); },
      .open = [devices, patience](const GpuId& id) { return open_gpu(*devices, id, patience); }};
}

Result<std::unique_ptr<ClockControl>> open_nvml_to_restore(const std::string& uuid) {
  return TRY(NvmlDevice::open_uuid(TRY(NvmlLibrary::load()), uuid, process_clock()));
}

}  // namespace derate
