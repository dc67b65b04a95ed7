// The part of NVML's C interface that Derate calls, in our own declarations: a build needs no
// NVIDIA header, and all calls to the driver can be seen at a glance. The name in a comment is
// NVML's; scripts/check_nvml_abi compares names, values and layouts with a real nvml.h.
#pragma once

namespace derate::nvml {

using Device = struct DeviceState*;        // nvmlDevice_t
using GpmSample = struct GpmSampleState*;  // nvmlGpmSample_t
using Instance = struct InstanceState*;    // nvmlGpuInstance_t
using EventSet = struct EventState*;       // nvmlEventSet_t

// nvmlReturn_t. The driver may answer with values that are not listed.
enum class Return : unsigned int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  no_permission = 4,
  not_found = 6,
  insufficient_size = 7,
  driver_not_loaded = 9,
  timeout = 10,
  library_not_found = 12,
  function_not_found = 13,
  gpu_is_lost = 15,
  reset_required = 16,
  operating_system = 17,  // blocked by the system, by a cgroup say
  lib_rm_version_mismatch = 18,
  argument_version_mismatch = 25,
  deprecated = 26,
  gpu_not_found = 28,
  unknown = 999,
};

enum class ClockType : unsigned int { graphics = 0, sm = 1, memory = 2 };  // nvmlClockType_t
enum class EnableState : unsigned int { off = 0, on = 1 };                 // nvmlEnableState_t
enum class TemperatureSensor : unsigned int { gpu = 0 };          // nvmlTemperatureSensors_t
enum class TemperatureThreshold : unsigned int { slowdown = 1 };  // nvmlTemperatureThresholds_t

// nvmlDeviceArchitecture_t, NVML_DEVICE_ARCH_*
inline constexpr unsigned int kArchPascal = 4;
inline constexpr unsigned int kArchVolta = 5;
inline constexpr unsigned int kArchTuring = 6;
inline constexpr unsigned int kArchAmpere = 7;
inline constexpr unsigned int kArchAda = 8;
inline constexpr unsigned int kArchHopper = 9;
inline constexpr unsigned int kArchBlackwell = 10;

// NVML_VALUE_NOT_AVAILABLE is -1, whatever the width of the field that it stands in.
inline constexpr unsigned int kNotAvailable = ~0u;
inline constexpr unsigned long long kNotAvailable64 = ~0ull;
// What stands for a MIG id in the row of a process that is in no instance.
inline constexpr unsigned int kNoInstance = ~0u;

// Sizes that hold the longest text of any driver.
inline constexpr unsigned int kNameSize = 96;           // NVML_DEVICE_NAME_V2_BUFFER_SIZE
inline constexpr unsigned int kUuidSize = 96;           // NVML_DEVICE_UUID_V2_BUFFER_SIZE
inline constexpr unsigned int kDriverVersionSize = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE

struct PciInfo {  // nvmlPciInfo_t, of nvmlDeviceGetPciInfo_v3
  char bus_id_legacy[16];
  unsigned int domain, bus, device;
  unsigned int pci_device_id;
  unsigned int pci_subsystem_id;
  char bus_id[32];
};

struct Memory {                          // nvmlMemory_t, bytes
  unsigned long long total, free, used;  // used: and what the driver keeps for itself
};
static_assert(sizeof(Memory) == 24);
struct MemoryV2 {  // nvmlMemory_v2_t, bytes
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);
inline constexpr unsigned int kMemoryV2 = sizeof(MemoryV2) | 2U << 24;  // nvmlMemory_v2

inline constexpr unsigned long long kEventXid = 0x8;  // nvmlEventTypeXidCriticalError
struct EventData {                                    // nvmlEventData_t
  Device device;
  unsigned long long type;
  unsigned long long data;  // of an Xid its number
  unsigned int gpu_instance, compute_instance;
};
static_assert(sizeof(EventData) == 32);

struct Utilization {  // nvmlUtilization_t, percent
  unsigned int gpu;
  unsigned int memory;
};

// A process: nvmlProcessInfo_v2_t of the _v2 calls, and nvmlProcessInfo_t of the _v3 calls of all
// drivers except those of kWideProcessRow.
struct ProcessInfo {
  unsigned int pid;
  unsigned long long used_memory;  // bytes
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);
// Drivers 535.43 to 535.86 write rows of the _v3 calls with one more field: the protected memory
// under confidential computing. 535.98 has no _v3 calls; 535.104 has them with 24 bytes again.
inline constexpr unsigned int kWideProcessRow = 32;

struct Attributes {  // nvmlDeviceAttributes_t, of a MIG device: a compute instance
  unsigned int multiprocessors;
  unsigned int shared_copy_engines, shared_decoders, shared_encoders, shared_jpegs, shared_ofas;
  unsigned int gpu_instance_slices, compute_instance_slices;
  unsigned long long memory_mib;  // of its GPU instance
};
static_assert(sizeof(Attributes) == 40);

struct InstanceProfile {  // nvmlGpuInstanceProfileInfo_v2_t
  unsigned int version;   // in
  unsigned int id;
  unsigned int p2p_supported;
  unsigned int slices;
  unsigned int instances;  // how many there is room for
  unsigned int multiprocessors;
  unsigned int copy_engines, decoders, encoders, jpegs, ofas;
  unsigned long long memory_mib;
  char name[kNameSize];  // "MIG 1g.18gb"
};
static_assert(sizeof(InstanceProfile) == 152);
inline constexpr unsigned int kInstanceProfileV2 = sizeof(InstanceProfile) | 2u << 24;
// NVML_GPU_INSTANCE_PROFILE_COUNT is 8 in version 11 and 17 in 13; more may come.
inline constexpr unsigned int kInstanceProfilesMax = 32;

struct InstancePlacement {  // nvmlGpuInstancePlacement_t, memory slices
  unsigned int start, size;
};

struct InstanceInfo {  // nvmlGpuInstanceInfo_t
  Device device;
  unsigned int id, profile_id;
  InstancePlacement placement;
};
static_assert(sizeof(InstanceInfo) == 24);

struct ProcessUtilization {  // nvmlProcessUtilizationSample_t, percent
  unsigned int pid;
  unsigned long long time_us;
  unsigned int sm, memory, encoder, decoder;
};

struct ProcessUtilizationInfo {  // nvmlProcessUtilizationInfo_v1_t, percent
  unsigned long long time_us;
  unsigned int pid, sm, memory, encoder, decoder, jpeg, optical_flow;
};
static_assert(sizeof(ProcessUtilizationInfo) == 40);

struct ProcessesUtilization {  // nvmlProcessesUtilizationInfo_v1_t
  unsigned int version = sizeof(ProcessesUtilization) | 1U << 24;
  unsigned int count = 0;               // room of the list; then its length
  unsigned long long last_seen_us = 0;  // samples after that time
  ProcessUtilizationInfo* list = nullptr;
};
static_assert(sizeof(ProcessesUtilization) == 24);

enum class ValueType : unsigned int {  // nvmlValueType_t
  real = 0,
  uint = 1,
  ulong = 2,
  ulonglong = 3,
  slonglong = 4,
};

union Value {  // nvmlValue_t
  double real;
  unsigned int uint;
  unsigned long ulong;
  unsigned long long ulonglong;
  long long slonglong;
};

// Errors that ECC has corrected, and those that it could not, since the driver was loaded.
inline constexpr unsigned int kFieldEccCorrected = 3;    // NVML_FI_DEV_ECC_SBE_VOL_TOTAL
inline constexpr unsigned int kFieldEccUncorrected = 4;  // NVML_FI_DEV_ECC_DBE_VOL_TOTAL
inline constexpr unsigned int kFieldPowerAverage = 185;  // NVML_FI_DEV_POWER_AVERAGE, mW
inline constexpr unsigned int kFieldPowerInstant = 186;  // NVML_FI_DEV_POWER_INSTANT, mW

struct FieldValue {    // nvmlFieldValue_t
  unsigned int field;  // in
  unsigned int scope;  // in; 0 is the whole GPU
  long long time_us;
  long long latency_us;
  ValueType type;
  Return code;  // each field has its own
  Value value;
};

// Settings that Derate reads and never writes.

inline constexpr unsigned int kPState0 = 0;  // NVML_PSTATE_0
struct ClockOffset {                         // nvmlClockOffset_v1_t
  unsigned int version = sizeof(ClockOffset) | 1U << 24;
  ClockType clock = ClockType::graphics;  // in
  unsigned int p_state = kPState0;        // in
  int offset_mhz = 0, lowest_mhz = 0, highest_mhz = 0;
};
static_assert(sizeof(ClockOffset) == 24);

// NVML_POWER_MIZER_MODE_*
inline constexpr unsigned int kPowerMizerAdaptive = 0, kPowerMizerMaximum = 1;
inline constexpr unsigned int kPowerMizerAuto = 2, kPowerMizerConsistent = 3;
struct PowerMizerModes {  // nvmlDevicePowerMizerModes_v1_t, without a version
  unsigned int current = 0;
  unsigned int requested = 0;  // of the call that sets it
  unsigned int supported = 0;  // bits
};
static_assert(sizeof(PowerMizerModes) == 12);

struct Mask255 {  // nvmlMask255_t
  unsigned int bits[8] = {};
};

struct PowerProfiles {  // nvmlWorkloadPowerProfileCurrentProfiles_v1_t
  unsigned int version = sizeof(PowerProfiles) | 1U << 24;
  Mask255 supported, requested, enforced;
};
static_assert(sizeof(PowerProfiles) == 100);

struct PowerProfile {  // nvmlWorkloadPowerProfileInfo_v1_t
  unsigned int version = sizeof(PowerProfile) | 1U << 24;
  unsigned int id = 0;
  unsigned int priority = 0;  // the lowest is enforced first
  Mask255 conflicts;
};
static_assert(sizeof(PowerProfile) == 44);

inline constexpr unsigned int kPowerProfilesMax = 255;  // NVML_WORKLOAD_POWER_MAX_PROFILES
struct PowerProfileTable {                              // nvmlWorkloadPowerProfileProfilesInfo_v1_t
  unsigned int version = sizeof(PowerProfileTable) | 1U << 24;
  Mask255 supported;
  PowerProfile profiles[kPowerProfilesMax];
};
static_assert(sizeof(PowerProfileTable) == 11256);

// nvmlGpuVirtualizationMode_t
enum class VirtualisationMode : unsigned int {
  none = 0,
  passthrough = 1,
  vgpu_guest = 2,
  vgpu_host = 3,
  vsga_host = 4
};

// nvmlGpmMetricId_t, as far as core/sample.h has a place for it. Ids that a driver does not know
// fail the whole call.
namespace gpm_metric {
inline constexpr unsigned int kGraphics = 1;  // percent, like all to kFp16
inline constexpr unsigned int kSm = 2;
inline constexpr unsigned int kOccupancy = 3;
inline constexpr unsigned int kInteger = 4;
inline constexpr unsigned int kTensor = 5;
inline constexpr unsigned int kDram = 10;
inline constexpr unsigned int kFp64 = 11;
inline constexpr unsigned int kFp32 = 12;
inline constexpr unsigned int kFp16 = 13;
inline constexpr unsigned int kPcieTx = 20;  // MiB/s
inline constexpr unsigned int kPcieRx = 21;  // MiB/s
}  // namespace gpm_metric

struct GpmMetric {  // nvmlGpmMetric_t
  unsigned int id;  // in
  Return code;
  double value;
  char* short_name;
  char* long_name;
  char* unit;
};

// The array grows with NVML (98 in version 11, 210 in 13.0, 333 reported since), the struct's
// version does not: the driver goes by `count`. The largest known length, so that none can write
// past it.
inline constexpr unsigned int kGpmMetricMax = 333;
inline constexpr unsigned int kGpmMetricsVersion = 1;
struct GpmMetrics {  // nvmlGpmMetricsGet_t
  unsigned int version;
  unsigned int count;
  GpmSample older, newer;
  GpmMetric metrics[kGpmMetricMax];
};

inline constexpr unsigned int kGpmSupportVersion = 1;
struct GpmSupport {  // nvmlGpmSupport_t
  unsigned int version;
  unsigned int supported;
};

}  // namespace derate::nvml

namespace derate {

template <class... A>
using NvmlCall = nvml::Return (*)(A...);

// Functions that list processes.
struct NvmlProcessFunctions {
  using List = NvmlCall<nvml::Device, unsigned int*, nvml::ProcessInfo*>;

  List compute_processes = nullptr;   // _v2
  List graphics_processes = nullptr;  // _v2
  // Called if the driver lacks the two above. The name does not show how long the rows are.
  List compute_processes_v3 = nullptr;
  List graphics_processes_v3 = nullptr;
  // Never called: the length of the _v3 rows follows from which of these the driver has.
  NvmlCall<nvml::Device, void*> protected_memory = nullptr, process_details = nullptr;
  NvmlCall<nvml::Device, nvml::ProcessUtilization*, unsigned int*, unsigned long long>
      process_utilization = nullptr;
  // Of drivers from 550 on. It answers where the one above fails: on Blackwell, by
  // Project-HAMi/HAMi-core#218. On an H200 both gave the same samples (580.159.04).
  NvmlCall<nvml::Device, nvml::ProcessesUtilization*> processes_utilization = nullptr;
};

// Functions that lock the memory clock.
struct NvmlMemoryFunctions {
  NvmlCall<nvml::Device, unsigned int, unsigned int> lock_memory = nullptr;  // MHz: lowest, highest
  NvmlCall<nvml::Device> reset_memory = nullptr;
};

// Functions that read settings of other tools.
struct NvmlModeFunctions {
  NvmlCall<nvml::Device, nvml::ClockOffset*> clock_offsets = nullptr;
  NvmlCall<nvml::Device, nvml::PowerMizerModes*> power_mizer = nullptr;
  NvmlCall<nvml::Device, nvml::PowerProfiles*> power_profiles = nullptr;
  NvmlCall<nvml::Device, nvml::PowerProfileTable*> power_profile_table = nullptr;
  NvmlCall<nvml::Device, nvml::EnableState*> display_active = nullptr;
  NvmlCall<nvml::Device, nvml::VirtualisationMode*> virtualisation_mode = nullptr;
};

// Functions that read a card's memory, link, fan, video engines and errors.
struct NvmlCardFunctions {
  using Number = NvmlCall<nvml::Device, unsigned int*>;
  NvmlCall<nvml::Device, nvml::MemoryV2*> memory = nullptr;
  NvmlCall<nvml::Device, nvml::Memory*> memory_v1 = nullptr;  // of drivers before 510
  Number pcie_generation = nullptr, pcie_lanes = nullptr;
  Number pcie_most_generation = nullptr, pcie_most_lanes = nullptr;
  Number fan = nullptr;  // percent
  // Percent; the sampling period in us.
  NvmlCall<nvml::Device, unsigned int*, unsigned int*> encoder = nullptr, decoder = nullptr;
  NvmlCall<nvml::EventSet*> event_set_create = nullptr;
  NvmlCall<nvml::EventSet> event_set_free = nullptr;
  NvmlCall<nvml::Device, unsigned long long, nvml::EventSet> event_register = nullptr;
  NvmlCall<nvml::EventSet, nvml::EventData*, unsigned int> event_wait = nullptr;  // ms
};

// Functions that name a GPU.
struct NvmlNameFunctions {
  NvmlCall<nvml::Device, unsigned int*> index = nullptr;
  NvmlCall<nvml::Device, char*, unsigned int> uuid = nullptr;
  NvmlCall<nvml::Device, char*, unsigned int> name = nullptr;
  NvmlCall<nvml::Device, nvml::PciInfo*> pci_info = nullptr;
  NvmlCall<nvml::Device, unsigned int*> minor_number = nullptr;  // N of /dev/nvidiaN
};

// Every function that Derate calls; nvml_symbols() has its name in the library. An optional one
// that the library lacks is null. Plain pointers: a test fills in its own.
struct NvmlFunctions : NvmlNameFunctions,
                       NvmlProcessFunctions,
                       NvmlModeFunctions,
                       NvmlCardFunctions,
                       NvmlMemoryFunctions {
  template <class... A>
  using Call = NvmlCall<A...>;

  Call<> init = nullptr;
  Call<> shutdown = nullptr;
  const char* (*error_string)(nvml::Return) = nullptr;
  Call<char*, unsigned int> driver_version = nullptr;
  Call<unsigned int, char*, unsigned int> process_name = nullptr;
  Call<unsigned int*> device_count = nullptr;
  Call<unsigned int, nvml::Device*> device_by_index = nullptr;
  Call<const char*, nvml::Device*> device_by_uuid = nullptr;

  Call<nvml::Device, unsigned int*> architecture = nullptr;
  Call<nvml::Device, unsigned int*, unsigned int*> memory_clocks = nullptr;
  Call<nvml::Device, unsigned int, unsigned int*, unsigned int*> graphics_clocks = nullptr;
  Call<nvml::Device, unsigned int*, unsigned int*> power_limit_range = nullptr;
  Call<nvml::Device, unsigned int*> power_limit_default = nullptr;
  Call<nvml::Device, nvml::TemperatureThreshold, unsigned int*> temperature_threshold = nullptr;
  Call<nvml::Device, nvml::EnableState*> persistence_mode = nullptr;

  Call<nvml::Device, nvml::Utilization*> utilization = nullptr;
  Call<nvml::Device, nvml::ClockType, unsigned int*> clock = nullptr;
  Call<nvml::Device, unsigned int*> power_usage = nullptr;
  Call<nvml::Device, int, nvml::FieldValue*> field_values = nullptr;
  Call<nvml::Device, unsigned long long*> throttle_reasons = nullptr;
  Call<nvml::Device, nvml::TemperatureSensor, unsigned int*> temperature = nullptr;
  Call<nvml::Device, unsigned long long*> energy = nullptr;

  // What changes a GPU, and what reads such a setting back.
  Call<nvml::Device, unsigned int, unsigned int> lock_clocks = nullptr;  // MHz: lowest, highest
  Call<nvml::Device> reset_clocks = nullptr;
  Call<nvml::Device, unsigned int> set_power_limit = nullptr;  // mW
  Call<nvml::Device, unsigned int*> power_limit = nullptr;
  Call<nvml::Device, nvml::ClockType, unsigned int*> application_clock = nullptr;
  Call<nvml::Device, unsigned int*, unsigned int*> mig_mode = nullptr;  // now, after a reset

  Call<nvml::Device, unsigned int*> mig_device_count = nullptr;  // how many there can be
  Call<nvml::Device, unsigned int, nvml::Device*> mig_device = nullptr;
  Call<nvml::Device, unsigned int*> gpu_instance_id = nullptr;      // of a MIG device
  Call<nvml::Device, unsigned int*> compute_instance_id = nullptr;  // likewise
  Call<nvml::Device, nvml::Attributes*> attributes = nullptr;       // likewise
  Call<nvml::Device, unsigned int, nvml::InstanceProfile*> instance_profile = nullptr;
  Call<nvml::Device, unsigned int, nvml::Instance*, unsigned int*> instances = nullptr;
  Call<nvml::Instance, nvml::InstanceInfo*> instance_info = nullptr;

  Call<nvml::Device, nvml::GpmSupport*> gpm_support = nullptr;
  Call<nvml::GpmSample*> gpm_alloc = nullptr;
  Call<nvml::GpmSample> gpm_free = nullptr;
  Call<nvml::Device, nvml::GpmSample> gpm_sample = nullptr;
  Call<nvml::Device, unsigned int, nvml::GpmSample> gpm_mig_sample = nullptr;  // by instance id
  Call<nvml::GpmMetrics*> gpm_metrics = nullptr;
};

}  // namespace derate
