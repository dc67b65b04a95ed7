// The parts of NVML's C interface that the library exports and Derate never calls; what both need
// is in device/nvml/nvml_abi.h. Our own declarations; scripts/check_fakenvml_abi compares them with
// a real nvml.h.
#pragma once

#include "device/nvml/nvml_abi.h"

namespace derate::nvml {

// More of nvmlReturn_t.
inline constexpr Return kAlreadyInitialized{5};
inline constexpr Return kNoData{21};

struct Bar1Memory {  // nvmlBAR1Memory_t
  unsigned long long total, free, used;
};

struct ProcessInfoV1 {  // nvmlProcessInfo_v1_t
  unsigned int pid;
  unsigned long long used_memory;
};

// What nvmlDeviceGetPciInfo and _v2 fill in, whatever follows it.
struct PciInfoV1 {
  char bus_id[16];
  unsigned int domain, bus, device;
  unsigned int pci_device_id;
  unsigned int pci_subsystem_id;
};

struct Sample {  // nvmlSample_t
  unsigned long long time_us;
  Value value;
};

struct ViolationTime {  // nvmlViolationTime_t: us and ns
  unsigned long long reference_us, violation_ns;
};

// nvmlWorkloadPowerProfileUpdateProfiles_v1_t, without a version
struct ProfileUpdate {
  unsigned int operation = 0;
  Mask255 profiles;
};
inline constexpr unsigned int kProfilesClear = 0, kProfilesAdd = 1, kProfilesReplace = 2;
struct RequestedProfiles {  // nvmlWorkloadPowerProfileRequestedProfiles_v1_t
  unsigned int version = sizeof(RequestedProfiles) | 1U << 24;
  Mask255 profiles;
};
static_assert(sizeof(RequestedProfiles) == 36);

struct ExcludedDevice;           // nvmlExcludedDeviceInfo_t
struct EncoderSession;           // nvmlEncoderSessionInfo_t
struct FbcSession;               // nvmlFBCSessionInfo_t
struct HwbcEntry;                // nvmlHwbcEntry_t
struct AccountingStats;          // nvmlAccountingStats_t
struct BridgeChips;              // nvmlBridgeChipHierarchy_t
struct EccCounts;                // nvmlEccErrorCounts_t
using Unit = struct UnitState*;  // nvmlUnit_t

struct FbcStats {  // nvmlFBCStats_t
  unsigned int sessions, average_fps, average_latency;
};

// The enumerations of NVML are as wide as an unsigned int.
inline constexpr unsigned int kClockTypes = 4;        // graphics, SM, memory, video
inline constexpr unsigned int kClockMemory = 2;       // NVML_CLOCK_MEM
inline constexpr unsigned int kBrandTesla = 2;        // NVML_BRAND_TESLA
inline constexpr unsigned int kBrandGeforceRtx = 15;  // NVML_BRAND_GEFORCE_RTX
inline constexpr unsigned int kBrandNvidia = 14;      // NVML_BRAND_NVIDIA
inline constexpr unsigned int kBusPcie = 2;           // NVML_BUS_TYPE_PCIE
inline constexpr unsigned int kFieldEccCurrent = 1;
inline constexpr unsigned int kFieldPowerViolation = 74, kFieldThermalViolation = 75;
inline constexpr unsigned int kFieldEnergy = 83;

}  // namespace derate::nvml
