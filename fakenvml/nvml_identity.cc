// NVML functions for the identity of a GPU (name, UUID, PCI, architecture, cores): nothing here
// changes while the server runs.
#include <cstring>
#include <string>

#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

constexpr unsigned int kNvidiaVendor = 0x10DE;
constexpr unsigned int kFirstBus = 0x10;  // as sim_capability() numbers them
constexpr unsigned int kPcieLanes = 16;

template <class F>
Return give_name(const char* function, Device device, char* out, uint size, F text) {
  return on_gpu(function, device, [&](const Call& call) {
    return give_text(std::string_view(text(call.identity())), out, size);
  });
}

unsigned int pci_device_id(const GpuIdentity& identity) {
  return identity.numbers.pci_device_id << 16 | kNvidiaVendor;
}

// The old call writes less than the struct of its prototype holds today.
Return give_old_pci_info(const char* function, Device device, nvml::PciInfo* out) {
  return on_gpu(function, device, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    nvml::PciInfoV1 info{};
    // A domain of four digits: "0000:10:00.0".
    put_text(info.bus_id, std::string_view(call.identity().pci_bus_id).substr(4));
    info.bus = kFirstBus + call.gpu;
    info.pci_device_id = pci_device_id(call.identity());
    std::memcpy(static_cast<void*>(out), &info, sizeof info);
    return Return::success;
  });
}

}  // namespace

Return nvmlDeviceGetName(Device device, char* out, uint size) {
  return on_any(__func__, device, [&](const Call& call) {
    std::string name = get_text(call.identity().name);
    if (!call.slot) return give_text(name, out, size);
    const auto mig = call.mig_device();
    if (!mig) return Return::invalid_argument;
    name += " MIG " + get_text(mig->profile);
    return give_text(name, out, size);
  });
}
Return nvmlDeviceGetUUID(Device device, char* out, uint size) {
  return on_any(__func__, device, [&](const Call& call) {
    if (!call.slot) return give_text(get_text(call.identity().uuid), out, size);
    const auto mig = call.mig_device();
    return mig ? give_text(get_text(mig->uuid), out, size) : Return::invalid_argument;
  });
}
Return nvmlDeviceGetSerial(Device device, char* out, uint size) {
  return give_name(__func__, device, out, size, [](const auto& id) { return id.serial; });
}
Return nvmlDeviceGetVbiosVersion(Device device, char* out, uint size) {
  return give_name(__func__, device, out, size, [](const auto&) { return "96.00.00.00.01"; });
}
Return nvmlDeviceGetBoardPartNumber(Device device, char* out, uint size) {
  return give_name(__func__, device, out, size, [](const auto& id) { return id.chip; });
}
Return nvmlDeviceGetInforomImageVersion(Device device, char* out, uint size) {
  return give_name(__func__, device, out, size, [](const auto&) { return "G000.0000.00.00"; });
}

Return nvmlDeviceGetPciInfo(Device device, nvml::PciInfo* out) {
  return give_old_pci_info(__func__, device, out);
}
Return nvmlDeviceGetPciInfo_v2(Device device, nvml::PciInfo* out) {
  return give_old_pci_info(__func__, device, out);
}
Return nvmlDeviceGetPciInfo_v3(Device device, nvml::PciInfo* out) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    *out = {};
    put_text(out->bus_id, call.identity().pci_bus_id);
    put_text(out->bus_id_legacy, std::string_view(call.identity().pci_bus_id).substr(4));
    out->bus = kFirstBus + call.gpu;
    out->pci_device_id = pci_device_id(call.identity());
    return Return::success;
  });
}

GIVES(nvmlDeviceGetIndex, uint, call.gpu)
GIVES(nvmlDeviceGetMinorNumber, uint, call.identity().numbers.minor)
GIVES(nvmlDeviceGetBoardId, uint, (kFirstBus + call.gpu) << 8)

Return nvmlDeviceGetBrand(Device device, uint* out) {
  return give(__func__, device, out, [](const Call& call) {
    const std::string_view name = call.identity().name;
    if (name.find("GeForce") != std::string_view::npos) return nvml::kBrandGeforceRtx;
    return name.starts_with("Tesla") ? nvml::kBrandTesla : nvml::kBrandNvidia;
  });
}
GIVES(nvmlDeviceGetArchitecture, uint, call.identity().architecture)
Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (major == nullptr || minor == nullptr) return Return::invalid_argument;
    *major = static_cast<int>(call.identity().compute_major);
    *minor = static_cast<int>(call.identity().compute_minor);
    return Return::success;
  });
}
GIVES(nvmlDeviceGetNumGpuCores, uint, call.identity().cores)
GIVES(nvmlDeviceGetMemoryBusWidth, uint, call.identity().memory_bus_bits)
GIVES(nvmlDeviceGetMaxPcieLinkGeneration, uint, call.identity().pcie_generation)
GIVES(nvmlDeviceGetCurrPcieLinkGeneration, uint, call.identity().pcie_generation)
GIVES(nvmlDeviceGetMaxPcieLinkWidth, uint, kPcieLanes)
GIVES(nvmlDeviceGetCurrPcieLinkWidth, uint, kPcieLanes)
GIVES(nvmlDeviceGetBusType, uint, nvml::kBusPcie)
GIVES(nvmlDeviceGetPowerSource, uint, 0)  // the mains
GIVES(nvmlDeviceGetMultiGpuBoard, uint, 0)
GIVES(nvmlDeviceGetIrqNum, uint, 0)
GIVES(nvmlDeviceGetNumFans, uint, call.identity().driver.display != 0 ? 1 : 0)
GIVES(nvmlDeviceGetComputeMode, uint, 0)  // anybody
GIVES(nvmlDeviceGetDisplayMode, EnableState, EnableState::off)
GIVES(nvmlDeviceGetDisplayActive, EnableState,
      call.identity().driver.display != 0 ? EnableState::on : EnableState::off)
GIVES(nvmlDeviceGetVirtualizationMode, nvml::VirtualisationMode, nvml::VirtualisationMode::none)
GIVES(nvmlDeviceGetAccountingMode, EnableState, EnableState::off)
Return nvmlDeviceGetEccMode(Device device, EnableState* current, EnableState* pending) {
  return on_gpu(__func__, device, [&](const Call&) {
    if (current == nullptr || pending == nullptr) return Return::invalid_argument;
    *current = *pending = EnableState::on;
    return Return::success;
  });
}
Return nvmlDeviceOnSameBoard(Device one, Device other, int* out) {
  return on_gpu(__func__, one, [&](const Call& call) {
    Call second;
    if (out == nullptr) return Return::invalid_argument;
    if (const Return code = enter("", other, second); code != Return::success) return code;
    *out = call.gpu == second.gpu ? 1 : 0;
    return Return::success;
  });
}

}  // namespace derate::fakenvml
