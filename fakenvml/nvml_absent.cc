// NVML functions that the simulated boards do not support: not_supported, as a server's GPU without
// fans, displays and NVLink would answer.
#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

Return absent(const char* function) {
  return guarded(function, [](const Call&) { return Return::not_supported; });
}

}  // namespace

// Defines a function of NVML by its name and the types of its parameters after the device.
#define ABSENT(name, ...)                                                               \
  Return name(Device device, __VA_ARGS__) {                                             \
    return on_gpu(__func__, device, [](const Call&) { return Return::not_supported; }); \
  }

ABSENT(nvmlDeviceGetFanSpeed, uint*)
ABSENT(nvmlDeviceGetFanSpeed_v2, uint, uint*)
ABSENT(nvmlDeviceGetAutoBoostedClocksEnabled, EnableState*, EnableState*)
ABSENT(nvmlDeviceSetAutoBoostedClocksEnabled, EnableState)
ABSENT(nvmlDeviceGetEncoderCapacity, uint, uint*)
ABSENT(nvmlDeviceGetEncoderSessions, uint*, nvml::EncoderSession*)
ABSENT(nvmlDeviceGetFBCSessions, uint*, nvml::FbcSession*)
ABSENT(nvmlDeviceGetBridgeChipInfo, nvml::BridgeChips*)
ABSENT(nvmlDeviceGetDriverModel, uint*, uint*)
ABSENT(nvmlDeviceGetGpuOperationMode, uint*, uint*)
ABSENT(nvmlDeviceGetAccountingBufferSize, uint*)
ABSENT(nvmlDeviceGetAccountingPids, uint*, uint*)
ABSENT(nvmlDeviceGetAccountingStats, uint, nvml::AccountingStats*)
ABSENT(nvmlDeviceGetDetailedEccErrors, uint, uint, nvml::EccCounts*)
ABSENT(nvmlDeviceGetMemoryErrorCounter, uint, uint, uint, ulonglong*)
ABSENT(nvmlDeviceGetRetiredPages, uint, uint*, ulonglong*)
ABSENT(nvmlDeviceGetRetiredPages_v2, uint, uint*, ulonglong*, ulonglong*)
ABSENT(nvmlDeviceGetInforomVersion, uint, char*, uint)
ABSENT(nvmlDeviceGetNvLinkState, uint, EnableState*)
ABSENT(nvmlDeviceGetNvLinkVersion, uint, uint*)
ABSENT(nvmlDeviceGetPcieLinkMaxSpeed, uint*)
ABSENT(nvmlDeviceGetCpuAffinity, uint, unsigned long*)
ABSENT(nvmlDeviceGetTopologyCommonAncestor, Device, uint*)
ABSENT(nvmlDeviceGetSupportedEventTypes, ulonglong*)
ABSENT(nvmlDeviceRegisterEvents, ulonglong, nvml::EventSet)

Return nvmlEventSetCreate(nvml::EventSet*) { return absent(__func__); }
Return nvmlEventSetFree(nvml::EventSet) { return absent(__func__); }
Return nvmlEventSetWait_v2(nvml::EventSet, nvml::EventData*, uint) { return absent(__func__); }

}  // namespace derate::fakenvml
