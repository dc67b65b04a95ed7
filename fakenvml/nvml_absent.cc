// NVML functions that the simulated boards do not support: not_supported, as a server's GPU without
// displays and NVLink would answer.
#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
using nvml::Return;

// Defines a function of NVML by its name and the types of its parameters after the device.
#define ABSENT(name, ...)                                                               \
  Return name(Device device, __VA_ARGS__) {                                             \
    return on_gpu(__func__, device, [](const Call&) { return Return::not_supported; }); \
  }

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

}  // namespace derate::fakenvml
