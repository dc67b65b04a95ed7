// What the simulated boards do not have, as a server's GPU without fans, displays and NVLink would
// say it.
#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

Return absent(const char* function, Device device) {
  return on_gpu(function, device, [](const Call&) { return Return::not_supported; });
}

}  // namespace

Return nvmlDeviceGetFanSpeed(Device device, uint*) { return absent(__func__, device); }
Return nvmlDeviceGetFanSpeed_v2(Device device, uint, uint*) { return absent(__func__, device); }
Return nvmlDeviceGetAutoBoostedClocksEnabled(Device device, EnableState*, EnableState*) {
  return absent(__func__, device);
}
Return nvmlDeviceSetAutoBoostedClocksEnabled(Device device, EnableState) {
  return absent(__func__, device);
}
Return nvmlDeviceGetEncoderCapacity(Device device, uint, uint*) { return absent(__func__, device); }
Return nvmlDeviceGetEncoderSessions(Device device, uint*, nvml::EncoderSession*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetFBCSessions(Device device, uint*, nvml::FbcSession*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetBridgeChipInfo(Device device, nvml::BridgeChips*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetDriverModel(Device device, uint*, uint*) { return absent(__func__, device); }
Return nvmlDeviceGetGpuOperationMode(Device device, uint*, uint*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetAccountingBufferSize(Device device, uint*) { return absent(__func__, device); }
Return nvmlDeviceGetAccountingPids(Device device, uint*, uint*) { return absent(__func__, device); }
Return nvmlDeviceGetAccountingStats(Device device, uint, nvml::AccountingStats*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetDetailedEccErrors(Device device, uint, uint, nvml::EccCounts*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetMemoryErrorCounter(Device device, uint, uint, uint, ulonglong*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetRetiredPages(Device device, uint, uint*, ulonglong*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetRetiredPages_v2(Device device, uint, uint*, ulonglong*, ulonglong*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetInforomVersion(Device device, uint, char*, uint) {
  return absent(__func__, device);
}
Return nvmlDeviceGetNvLinkState(Device device, uint, EnableState*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetNvLinkVersion(Device device, uint, uint*) { return absent(__func__, device); }
Return nvmlDeviceGetPcieLinkMaxSpeed(Device device, uint*) { return absent(__func__, device); }
Return nvmlDeviceGetCpuAffinity(Device device, uint, unsigned long*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetTopologyCommonAncestor(Device device, Device, uint*) {
  return absent(__func__, device);
}
Return nvmlDeviceGetSupportedEventTypes(Device device, ulonglong*) {
  return absent(__func__, device);
}
Return nvmlDeviceRegisterEvents(Device device, ulonglong, nvml::EventSet) {
  return absent(__func__, device);
}
Return nvmlEventSetCreate(nvml::EventSet*) {
  return guarded(__func__, [](const Call&) { return Return::not_supported; });
}
Return nvmlEventSetFree(nvml::EventSet) {
  return guarded(__func__, [](const Call&) { return Return::not_supported; });
}
Return nvmlEventSetWait_v2(nvml::EventSet, nvml::EventData*, uint) {
  return guarded(__func__, [](const Call&) { return Return::not_supported; });
}

}  // namespace derate::fakenvml
