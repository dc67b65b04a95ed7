// The part of DCGM's C interface that Derate calls, in our own declarations: a build needs no
// NVIDIA header, and all calls to the host engine can be seen at a glance. The name in a comment is
// DCGM's; scripts/check_dcgm_abi compares values and layouts with real headers. All of it is the
// same in DCGM 3.3.9 and 4.6.0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace derate::dcgm {

using Handle = std::uintptr_t;      // dcgmHandle_t, a connection
using Group = std::uintptr_t;       // dcgmGpuGrp_t, of entities
using FieldGroup = std::uintptr_t;  // dcgmFieldGrp_t
using FieldId = std::uint16_t;

// dcgmReturn_t. The library may answer with values that are not listed.
enum class Return : int {
  ok = 0,
  bad_param = -1,
  not_supported = -6,
  timeout = -11,
  version_mismatch = -12,
  no_data = -14,
  stale_data = -15,
  not_watched = -16,
  no_permission = -17,
  gpu_is_lost = -18,
  connection_not_valid = -21,
  max_limit = -24,
  duplicate_key = -26,
  module_not_loaded = -33,
  in_use = -34,
  profiling_not_supported = -36,
  profiling_library_error = -37,  // another process has the profiling hardware, say
  profiling_multi_pass = -38,
  paused = -54,
};

// dcgm_field_entity_group_t
enum class EntityKind : int { none = 0, gpu = 1, gpu_instance = 4, compute_instance = 5 };

inline constexpr int kEmptyGroup = 1;                             // DCGM_GROUP_EMPTY
inline constexpr unsigned int kLiveData = 1;                      // DCGM_FV_FLAG_LIVE_DATA
inline constexpr std::size_t kMostGpus = 32;                      // DCGM_MAX_NUM_DEVICES
inline constexpr std::size_t kMostText = 256;                     // DCGM_MAX_STR_LENGTH
inline constexpr int kPort = 5555;                                // DCGM_HE_PORT_NUMBER
inline constexpr const char* kSocketPath = "/tmp/nv-hostengine";  // DCGM_DEFAULT_SOCKET_PATH

// DCGM_FI_*: newer headers have new names; the numbers have stayed.
namespace field {
inline constexpr FieldId kUuid = 54;
inline constexpr FieldId kGraphics = 1001;
inline constexpr FieldId kSm = 1002;
inline constexpr FieldId kOccupancy = 1003;
inline constexpr FieldId kTensor = 1004;
inline constexpr FieldId kDram = 1005;
inline constexpr FieldId kFp64 = 1006;
inline constexpr FieldId kFp32 = 1007;
inline constexpr FieldId kFp16 = 1008;
inline constexpr FieldId kPcieTx = 1009;
inline constexpr FieldId kPcieRx = 1010;
inline constexpr FieldId kInteger = 1016;
}  // namespace field

// DCGM_FT_*
inline constexpr std::uint16_t kDouble = 'd';
inline constexpr std::uint16_t kInteger = 'i';
inline constexpr std::uint16_t kText = 's';
// DCGM_FP64_BLANK: this and what is above it stands for no value.
inline constexpr double kBlank = 140737488355328.0;

// DCGM's own word for a struct's layout.
template <class T>
constexpr unsigned int version_of(unsigned int version) {
  return static_cast<unsigned int>(sizeof(T)) | version << 24;
}

struct ConnectParams {  // dcgmConnectV2Params_v2
  unsigned int version = 0;
  unsigned int persist_after_disconnect = 0;
  unsigned int timeout_ms = 0;
  unsigned int address_is_unix_socket = 0;
};
static_assert(version_of<ConnectParams>(2) == 0x02000010);

struct VersionInfo {  // dcgmVersionInfo_v2
  unsigned int version = 0;
  char text[512] = {};  // "version:4.6.0;arch:x86_64;..."
};
static_assert(version_of<VersionInfo>(2) == 0x02000204);

struct Entity {  // dcgmGroupEntityPair_t
  EntityKind kind = EntityKind::none;
  unsigned int id = 0;
  auto operator<=>(const Entity&) const = default;
};
static_assert(sizeof(Entity) == 8);

struct FieldValue {  // dcgmFieldValue_v2
  unsigned int version;
  EntityKind kind;
  unsigned int entity;
  FieldId field;
  std::uint16_t type;
  int status;
  unsigned int unused;
  std::int64_t microseconds;  // since 1970
  union {
    std::int64_t integer;
    double real;
    char text[kMostText];
    char blob[4096];
  } value;
};
static_assert(sizeof(FieldValue) == 4128 && offsetof(FieldValue, microseconds) == 24 &&
              offsetof(FieldValue, value) == 32);

struct MetricGroup {  // dcgmProfMetricGroupInfo_v2
  // Of two groups with the same major number one at a time can be measured.
  std::uint16_t major, minor;
  unsigned int count;
  FieldId fields[64];
};
static_assert(sizeof(MetricGroup) == 136);

struct MetricGroups {  // dcgmProfGetMetricGroups_v3
  unsigned int version;
  unsigned int unused;
  unsigned int gpu;
  unsigned int count;
  MetricGroup groups[10];
};
static_assert(version_of<MetricGroups>(3) == 0x03000560);

struct HierarchyEntry {  // dcgmMigHierarchyInfo_v2
  Entity entity, parent;
  char gpu_uuid[128];
  unsigned int nvml_index;
  unsigned int gpu_instance, compute_instance;  // NVML's numbers; all ones: none
  unsigned int profile, slices;
};
static_assert(sizeof(HierarchyEntry) == 164);

struct Hierarchy {  // dcgmMigHierarchy_v2
  unsigned int version;
  unsigned int count;
  HierarchyEntry entries[448];
};
static_assert(version_of<Hierarchy>(2) == 0x02011f08);

}  // namespace derate::dcgm

namespace derate {

template <class... A>
using DcgmCall = dcgm::Return (*)(A...);

// Every function that Derate calls; dcgm_symbols() has its name in the library. Plain pointers: a
// test fills in its own.
struct DcgmFunctions {
  DcgmCall<> init = nullptr;
  DcgmCall<> shutdown = nullptr;
  const char* (*error_string)(dcgm::Return) = nullptr;
  DcgmCall<const char*, dcgm::ConnectParams*, dcgm::Handle*> connect = nullptr;
  DcgmCall<dcgm::Handle> disconnect = nullptr;
  DcgmCall<dcgm::Handle, dcgm::VersionInfo*> engine_version = nullptr;
  DcgmCall<dcgm::Handle, unsigned int*, int*> all_gpus = nullptr;  // room for kMostGpus
  DcgmCall<dcgm::Handle, dcgm::MetricGroups*> metric_groups = nullptr;
  DcgmCall<dcgm::Handle, dcgm::Hierarchy*> hierarchy = nullptr;
  DcgmCall<dcgm::Handle, int, const char*, dcgm::Group*> group_create = nullptr;
  DcgmCall<dcgm::Handle, dcgm::Group, dcgm::EntityKind, unsigned int> group_add = nullptr;
  DcgmCall<dcgm::Handle, dcgm::Group> group_destroy = nullptr;
  DcgmCall<dcgm::Handle, int, const dcgm::FieldId*, const char*, dcgm::FieldGroup*> fields_create =
      nullptr;
  // Microseconds between values, seconds that a value is kept, and how many are.
  DcgmCall<dcgm::Handle, dcgm::Group, dcgm::FieldGroup, long long, double, int> watch = nullptr;
  DcgmCall<dcgm::Handle, dcgm::Group, dcgm::FieldGroup> unwatch = nullptr;
  // Entities, fields, flags, and a value for each pair of the two.
  DcgmCall<dcgm::Handle, dcgm::Entity*, unsigned int, dcgm::FieldId*, unsigned int, unsigned int,
           dcgm::FieldValue*>
      latest_values = nullptr;
};

}  // namespace derate
