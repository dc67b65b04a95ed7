// Every function of the library: the one list. FAKENVML(name)(parameters) declares it with NVML's
// prototype; the check script gives the macro another meaning.
#pragma once

#include "fakenvml/abi.h"

#ifndef FAKENVML
#define FAKENVML(name) extern "C" __attribute__((visibility("default"))) derate::nvml::Return name
#endif

namespace derate::fakenvml {

using nvml::Device;
using nvml::EnableState;
using uint = unsigned int;
using ulonglong = unsigned long long;

// --- the library ---------------------------------------------------------------------------------
FAKENVML(nvmlInit)();
FAKENVML(nvmlInit_v2)();
FAKENVML(nvmlInitWithFlags)(uint flags);
FAKENVML(nvmlShutdown)();
#ifndef FAKENVML_CHECK
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvml::Return code);
#endif
FAKENVML(nvmlSystemGetDriverVersion)(char* out, uint size);
FAKENVML(nvmlSystemGetNVMLVersion)(char* out, uint size);
FAKENVML(nvmlSystemGetCudaDriverVersion)(int* out);
FAKENVML(nvmlSystemGetCudaDriverVersion_v2)(int* out);
FAKENVML(nvmlSystemGetProcessName)(uint pid, char* out, uint size);
FAKENVML(nvmlSystemGetHicVersion)(uint* count, nvml::HwbcEntry* out);
FAKENVML(nvmlUnitGetCount)(uint* count);
FAKENVML(nvmlGetExcludedDeviceCount)(uint* count);
FAKENVML(nvmlGetExcludedDeviceInfoByIndex)(uint index, nvml::ExcludedDevice* out);

// --- handles -------------------------------------------------------------------------------------
FAKENVML(nvmlDeviceGetCount)(uint* count);
FAKENVML(nvmlDeviceGetCount_v2)(uint* count);
FAKENVML(nvmlDeviceGetHandleByIndex)(uint index, Device* out);
FAKENVML(nvmlDeviceGetHandleByIndex_v2)(uint index, Device* out);
FAKENVML(nvmlDeviceGetHandleByUUID)(const char* uuid, Device* out);
FAKENVML(nvmlDeviceGetHandleBySerial)(const char* serial, Device* out);
FAKENVML(nvmlDeviceGetHandleByPciBusId)(const char* id, Device* out);
FAKENVML(nvmlDeviceGetHandleByPciBusId_v2)(const char* id, Device* out);

// --- what a GPU is -------------------------------------------------------------------------------
FAKENVML(nvmlDeviceGetName)(Device device, char* out, uint size);
FAKENVML(nvmlDeviceGetUUID)(Device device, char* out, uint size);
FAKENVML(nvmlDeviceGetSerial)(Device device, char* out, uint size);
FAKENVML(nvmlDeviceGetVbiosVersion)(Device device, char* out, uint size);
FAKENVML(nvmlDeviceGetBoardPartNumber)(Device device, char* out, uint size);
FAKENVML(nvmlDeviceGetInforomImageVersion)(Device device, char* out, uint size);
FAKENVML(nvmlDeviceGetPciInfo)(Device device, nvml::PciInfo* out);
FAKENVML(nvmlDeviceGetPciInfo_v2)(Device device, nvml::PciInfo* out);
FAKENVML(nvmlDeviceGetPciInfo_v3)(Device device, nvml::PciInfo* out);
FAKENVML(nvmlDeviceGetIndex)(Device device, uint* out);
FAKENVML(nvmlDeviceGetMinorNumber)(Device device, uint* out);
FAKENVML(nvmlDeviceGetBrand)(Device device, uint* out);
FAKENVML(nvmlDeviceGetArchitecture)(Device device, uint* out);
FAKENVML(nvmlDeviceGetCudaComputeCapability)(Device device, int* major, int* minor);
FAKENVML(nvmlDeviceGetNumGpuCores)(Device device, uint* out);
FAKENVML(nvmlDeviceGetMemoryBusWidth)(Device device, uint* out);
FAKENVML(nvmlDeviceGetBusType)(Device device, uint* out);
FAKENVML(nvmlDeviceGetPowerSource)(Device device, uint* out);
FAKENVML(nvmlDeviceGetBoardId)(Device device, uint* out);
FAKENVML(nvmlDeviceGetMultiGpuBoard)(Device device, uint* out);
FAKENVML(nvmlDeviceGetIrqNum)(Device device, uint* out);
FAKENVML(nvmlDeviceGetNumFans)(Device device, uint* out);
FAKENVML(nvmlDeviceGetDisplayMode)(Device device, EnableState* out);
FAKENVML(nvmlDeviceGetDisplayActive)(Device device, EnableState* out);
FAKENVML(nvmlDeviceGetComputeMode)(Device device, uint* out);
FAKENVML(nvmlDeviceGetEccMode)(Device device, EnableState* current, EnableState* pending);
FAKENVML(nvmlDeviceGetAccountingMode)(Device device, EnableState* out);
FAKENVML(nvmlDeviceOnSameBoard)(Device one, Device other, int* out);
FAKENVML(nvmlDeviceGetMaxPcieLinkGeneration)(Device device, uint* out);
FAKENVML(nvmlDeviceGetCurrPcieLinkGeneration)(Device device, uint* out);
FAKENVML(nvmlDeviceGetMaxPcieLinkWidth)(Device device, uint* out);
FAKENVML(nvmlDeviceGetCurrPcieLinkWidth)(Device device, uint* out);

// --- sensors -------------------------------------------------------------------------------------
FAKENVML(nvmlDeviceGetUtilizationRates)(Device device, nvml::Utilization* out);
FAKENVML(nvmlDeviceGetEncoderUtilization)(Device device, uint* percent, uint* period_us);
FAKENVML(nvmlDeviceGetDecoderUtilization)(Device device, uint* percent, uint* period_us);
FAKENVML(nvmlDeviceGetTemperature)(Device device, nvml::TemperatureSensor sensor, uint* out);
FAKENVML(nvmlDeviceGetTemperatureThreshold)
(Device device, nvml::TemperatureThreshold which, uint* out);
FAKENVML(nvmlDeviceGetPerformanceState)(Device device, uint* out);
FAKENVML(nvmlDeviceGetPowerState)(Device device, uint* out);
FAKENVML(nvmlDeviceGetCurrentClocksThrottleReasons)(Device device, ulonglong* out);
FAKENVML(nvmlDeviceGetCurrentClocksEventReasons)(Device device, ulonglong* out);
FAKENVML(nvmlDeviceGetSupportedClocksThrottleReasons)(Device device, ulonglong* out);
FAKENVML(nvmlDeviceGetSupportedClocksEventReasons)(Device device, ulonglong* out);
FAKENVML(nvmlDeviceGetViolationStatus)(Device device, uint policy, nvml::ViolationTime* out);
FAKENVML(nvmlDeviceGetFieldValues)(Device device, int count, nvml::FieldValue* values);
FAKENVML(nvmlDeviceGetSamples)
(Device device, uint type, ulonglong last_seen_us, nvml::ValueType* value_type, uint* count,
 nvml::Sample* samples);
FAKENVML(nvmlDeviceGetMemoryInfo)(Device device, nvml::Memory* out);
FAKENVML(nvmlDeviceGetMemoryInfo_v2)(Device device, nvml::MemoryV2* out);
FAKENVML(nvmlDeviceGetBAR1MemoryInfo)(Device device, nvml::Bar1Memory* out);
FAKENVML(nvmlDeviceGetPcieThroughput)(Device device, uint counter, uint* out);
FAKENVML(nvmlDeviceGetPcieReplayCounter)(Device device, uint* out);
FAKENVML(nvmlDeviceGetTotalEccErrors)
(Device device, uint error_type, uint counter_type, ulonglong* out);
FAKENVML(nvmlDeviceGetFBCStats)(Device device, nvml::FbcStats* out);
FAKENVML(nvmlDeviceGetEncoderStats)(Device device, uint* count, uint* fps, uint* latency);

// --- clocks --------------------------------------------------------------------------------------
FAKENVML(nvmlDeviceGetClockInfo)(Device device, nvml::ClockType type, uint* out);
FAKENVML(nvmlDeviceGetMaxClockInfo)(Device device, nvml::ClockType type, uint* out);
FAKENVML(nvmlDeviceGetClock)(Device device, nvml::ClockType type, uint id, uint* out);
FAKENVML(nvmlDeviceGetMaxCustomerBoostClock)(Device device, nvml::ClockType type, uint* out);
FAKENVML(nvmlDeviceGetApplicationsClock)(Device device, nvml::ClockType type, uint* out);
FAKENVML(nvmlDeviceGetDefaultApplicationsClock)(Device device, nvml::ClockType type, uint* out);
FAKENVML(nvmlDeviceGetSupportedMemoryClocks)(Device device, uint* count, uint* out);
FAKENVML(nvmlDeviceGetSupportedGraphicsClocks)
(Device device, uint memory_mhz, uint* count, uint* out);
FAKENVML(nvmlDeviceSetGpuLockedClocks)(Device device, uint lowest_mhz, uint highest_mhz);
FAKENVML(nvmlDeviceResetGpuLockedClocks)(Device device);
FAKENVML(nvmlDeviceSetMemoryLockedClocks)(Device device, uint lowest_mhz, uint highest_mhz);
FAKENVML(nvmlDeviceResetMemoryLockedClocks)(Device device);
FAKENVML(nvmlDeviceSetApplicationsClocks)(Device device, uint memory_mhz, uint sm_mhz);
FAKENVML(nvmlDeviceResetApplicationsClocks)(Device device);

// --- power ---------------------------------------------------------------------------------------
FAKENVML(nvmlDeviceGetPowerUsage)(Device device, uint* milliwatts);
FAKENVML(nvmlDeviceGetTotalEnergyConsumption)(Device device, ulonglong* millijoules);
FAKENVML(nvmlDeviceGetPowerManagementMode)(Device device, EnableState* out);
FAKENVML(nvmlDeviceGetPowerManagementLimit)(Device device, uint* milliwatts);
FAKENVML(nvmlDeviceGetEnforcedPowerLimit)(Device device, uint* milliwatts);
FAKENVML(nvmlDeviceGetPowerManagementDefaultLimit)(Device device, uint* milliwatts);
FAKENVML(nvmlDeviceGetPowerManagementLimitConstraints)(Device device, uint* lowest, uint* highest);
FAKENVML(nvmlDeviceSetPowerManagementLimit)(Device device, uint milliwatts);

// --- modes ---------------------------------------------------------------------------------------
FAKENVML(nvmlDeviceGetPersistenceMode)(Device device, EnableState* out);
FAKENVML(nvmlDeviceSetPersistenceMode)(Device device, EnableState mode);
FAKENVML(nvmlDeviceGetMigMode)(Device device, uint* current, uint* pending);
FAKENVML(nvmlDeviceSetMigMode)(Device device, uint mode, nvml::Return* activation);
FAKENVML(nvmlDeviceGetAPIRestriction)(Device device, uint api, EnableState* out);

FAKENVML(nvmlDeviceGetVirtualizationMode)(Device device, nvml::VirtualisationMode* out);
FAKENVML(nvmlDeviceGetClockOffsets)(Device device, nvml::ClockOffset* info);
FAKENVML(nvmlDeviceSetClockOffsets)(Device device, nvml::ClockOffset* info);
FAKENVML(nvmlDeviceGetPowerMizerMode_v1)(Device device, nvml::PowerMizerModes* modes);
FAKENVML(nvmlDeviceSetPowerMizerMode_v1)(Device device, nvml::PowerMizerModes* modes);
FAKENVML(nvmlDeviceWorkloadPowerProfileGetProfilesInfo)
(Device device, nvml::PowerProfileTable* table);
FAKENVML(nvmlDeviceWorkloadPowerProfileGetCurrentProfiles)
(Device device, nvml::PowerProfiles* out);
FAKENVML(nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1)
(Device device, nvml::ProfileUpdate* change);
FAKENVML(nvmlDeviceWorkloadPowerProfileSetRequestedProfiles)
(Device device, nvml::RequestedProfiles* profiles);
FAKENVML(nvmlDeviceWorkloadPowerProfileClearRequestedProfiles)
(Device device, nvml::RequestedProfiles* profiles);

// --- MIG -----------------------------------------------------------------------------------------
FAKENVML(nvmlDeviceGetMaxMigDeviceCount)(Device device, uint* out);
FAKENVML(nvmlDeviceGetMigDeviceHandleByIndex)(Device device, uint index, Device* out);
FAKENVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(Device mig, Device* out);
FAKENVML(nvmlDeviceIsMigDeviceHandle)(Device device, uint* out);
FAKENVML(nvmlDeviceGetGpuInstanceId)(Device mig, uint* out);
FAKENVML(nvmlDeviceGetComputeInstanceId)(Device mig, uint* out);
FAKENVML(nvmlDeviceGetAttributes_v2)(Device mig, nvml::Attributes* out);
FAKENVML(nvmlDeviceGetGpuInstanceProfileInfoV)
(Device device, uint profile, nvml::InstanceProfile* out);
FAKENVML(nvmlDeviceGetGpuInstances)
(Device device, uint profile_id, nvml::Instance* out, uint* count);
FAKENVML(nvmlGpuInstanceGetInfo)(nvml::Instance instance, nvml::InstanceInfo* out);

// --- processes -----------------------------------------------------------------------------------
FAKENVML(nvmlDeviceGetComputeRunningProcesses)
(Device device, uint* count, nvml::ProcessInfoV1* out);
FAKENVML(nvmlDeviceGetComputeRunningProcesses_v2)
(Device device, uint* count, nvml::ProcessInfo* out);
FAKENVML(nvmlDeviceGetComputeRunningProcesses_v3)
(Device device, uint* count, nvml::ProcessInfo* out);
FAKENVML(nvmlDeviceGetGraphicsRunningProcesses)
(Device device, uint* count, nvml::ProcessInfoV1* out);
FAKENVML(nvmlDeviceGetGraphicsRunningProcesses_v2)
(Device device, uint* count, nvml::ProcessInfo* out);
FAKENVML(nvmlDeviceGetGraphicsRunningProcesses_v3)
(Device device, uint* count, nvml::ProcessInfo* out);
FAKENVML(nvmlDeviceGetMPSComputeRunningProcesses)
(Device device, uint* count, nvml::ProcessInfoV1* out);
FAKENVML(nvmlDeviceGetMPSComputeRunningProcesses_v2)
(Device device, uint* count, nvml::ProcessInfo* out);
FAKENVML(nvmlDeviceGetMPSComputeRunningProcesses_v3)
(Device device, uint* count, nvml::ProcessInfo* out);
FAKENVML(nvmlDeviceGetProcessUtilization)
(Device device, nvml::ProcessUtilization* out, uint* count, ulonglong last_seen_us);
FAKENVML(nvmlDeviceGetProcessesUtilizationInfo)
(Device device, nvml::ProcessesUtilization* info);

// --- GPM -----------------------------------------------------------------------------------------
FAKENVML(nvmlGpmQueryDeviceSupport)(Device device, nvml::GpmSupport* out);
FAKENVML(nvmlGpmSampleAlloc)(nvml::GpmSample* out);
FAKENVML(nvmlGpmSampleFree)(nvml::GpmSample sample);
FAKENVML(nvmlGpmSampleGet)(Device device, nvml::GpmSample sample);
FAKENVML(nvmlGpmMigSampleGet)(Device device, uint instance, nvml::GpmSample sample);
FAKENVML(nvmlGpmMetricsGet)(nvml::GpmMetrics* query);

// --- what these boards do not have: not_supported ------------------------------------------------
FAKENVML(nvmlDeviceGetFanSpeed)(Device device, uint* out);
FAKENVML(nvmlDeviceGetFanSpeed_v2)(Device device, uint fan, uint* out);
FAKENVML(nvmlDeviceGetAutoBoostedClocksEnabled)
(Device device, EnableState* enabled, EnableState* by_default);
FAKENVML(nvmlDeviceSetAutoBoostedClocksEnabled)(Device device, EnableState enabled);
FAKENVML(nvmlDeviceGetEncoderCapacity)(Device device, uint type, uint* out);
FAKENVML(nvmlDeviceGetEncoderSessions)(Device device, uint* count, nvml::EncoderSession* out);
FAKENVML(nvmlDeviceGetFBCSessions)(Device device, uint* count, nvml::FbcSession* out);
FAKENVML(nvmlDeviceGetBridgeChipInfo)(Device device, nvml::BridgeChips* out);
FAKENVML(nvmlDeviceGetDriverModel)(Device device, uint* current, uint* pending);
FAKENVML(nvmlDeviceGetGpuOperationMode)(Device device, uint* current, uint* pending);
FAKENVML(nvmlDeviceGetAccountingBufferSize)(Device device, uint* out);
FAKENVML(nvmlDeviceGetAccountingPids)(Device device, uint* count, uint* pids);
FAKENVML(nvmlDeviceGetAccountingStats)(Device device, uint pid, nvml::AccountingStats* out);
FAKENVML(nvmlDeviceGetDetailedEccErrors)
(Device device, uint error_type, uint counter_type, nvml::EccCounts* out);
FAKENVML(nvmlDeviceGetMemoryErrorCounter)
(Device device, uint error_type, uint counter_type, uint location, ulonglong* out);
FAKENVML(nvmlDeviceGetRetiredPages)
(Device device, uint cause, uint* count, ulonglong* addresses);
FAKENVML(nvmlDeviceGetRetiredPages_v2)
(Device device, uint cause, uint* count, ulonglong* addresses, ulonglong* times);
FAKENVML(nvmlDeviceGetInforomVersion)(Device device, uint object, char* out, uint size);
FAKENVML(nvmlDeviceGetNvLinkState)(Device device, uint link, EnableState* out);
FAKENVML(nvmlDeviceGetNvLinkVersion)(Device device, uint link, uint* out);
FAKENVML(nvmlDeviceGetPcieLinkMaxSpeed)(Device device, uint* out);
FAKENVML(nvmlDeviceGetCpuAffinity)(Device device, uint size, unsigned long* out);
FAKENVML(nvmlDeviceGetTopologyCommonAncestor)(Device one, Device other, uint* out);
FAKENVML(nvmlDeviceGetSupportedEventTypes)(Device device, ulonglong* out);
FAKENVML(nvmlEventSetCreate)(nvml::EventSet* out);
FAKENVML(nvmlEventSetFree)(nvml::EventSet set);
FAKENVML(nvmlEventSetWait_v2)(nvml::EventSet set, nvml::EventData* out, uint timeout_ms);
FAKENVML(nvmlDeviceRegisterEvents)(Device device, ulonglong types, nvml::EventSet set);

// --- of the simulation, not of NVML --------------------------------------------------------------
// The settings and the truth of a simulated GPU. `size` is the caller's: sizeof(SimTruth).
// All ones is what is not set.
struct SimTruth {
  uint size;
  uint locked_lowest_mhz, locked_highest_mhz;
  uint memory_locked_lowest_mhz, memory_locked_highest_mhz;
  uint application_sm_mhz, application_memory_mhz;
  uint power_limit_mw;
  uint persistence;
  uint sm_clock_mhz;
  ulonglong writes;     // accepted since the server started
  double work_seconds;  // reference seconds of work done
  double joules;
};
FAKENVML(nvmlDerateSimQuery)(const char* uuid, SimTruth* out);

}  // namespace derate::fakenvml
