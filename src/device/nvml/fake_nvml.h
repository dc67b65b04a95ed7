// For tests: an NVML made of plain functions over structs that a test fills in. A fake GPU's
// address is its device handle; the rest hangs on the one FakeNvml that is alive.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "device/nvml/nvml_library.h"

namespace derate {

// A compute instance: what NVML calls a MIG device. Its address is its handle.
struct FakeMigDevice {
  unsigned int gpu_instance = 0, compute_instance = 0;
  std::string uuid, name;
  nvml::Attributes attributes{};
};

struct FakeGpu {
  std::string uuid = "GPU-00000000-0000-0000-0000-000000000000";
  std::string name = "NVIDIA H200";
  std::string pci_bus_id = "00000000:65:00.0";
  unsigned int architecture = nvml::kArchHopper;
  std::vector<unsigned int> memory_clocks{3201, 1593};
  std::vector<unsigned int> graphics_clocks{1980, 1965, 1965, 345};
  unsigned int power_lowest = 200'000, power_highest = 700'000, power_default = 700'000;
  unsigned int power_limit = 650'000, application_graphics = 1830, application_memory = 3201;
  unsigned int mig = 0;
  std::vector<nvml::InstanceProfile> profiles = h200_profiles();
  std::vector<nvml::InstanceInfo> instances;
  std::vector<std::unique_ptr<FakeMigDevice>> mig_devices;  // null: a hole
  std::vector<std::string> writes;
  unsigned int slowdown = 87;
  nvml::EnableState persistence = nvml::EnableState::on;

  nvml::Utilization utilization{97, 41};
  unsigned int sm_clock = 1755, memory_clock = 3201;
  unsigned int power_usage = 512'340, power_average = 511'000, power_instant = 600'500;
  nvml::Return average_code = nvml::Return::success, instant_code = nvml::Return::success;
  nvml::ValueType power_type = nvml::ValueType::uint;
  unsigned long long throttle_reasons = 0x4, energy = 123'456'789;
  unsigned int temperature = 61;

  std::vector<nvml::ProcessInfo> compute, graphics;
  std::vector<nvml::ProcessUtilization> process_utilization;
  int processes_born = 0;  // added to `compute`, one a call, before the call answers
  unsigned long long asked_since = 0;

  unsigned int gpm_supported = 1;
  int gpm_step = 0;  // counts samples
  std::map<unsigned int, double> gpm_values{{1, 100}, {2, 90}, {3, 40}, {4, 10}, {5, 55}, {10, 30},
                                            {11, 1},  {12, 2}, {13, 3}, {20, 4}, {21, 5}};
  std::map<unsigned int, nvml::Return> gpm_codes;
  std::map<unsigned int, double> instance_sm;  // metric 2 of an instance, in place of the GPU's
  std::map<unsigned int, nvml::Return> instance_gpm_codes;

  // NVML's index of it: slices, multiprocessors, MiB and the rest as an H200 has them.
  static std::vector<nvml::InstanceProfile> h200_profiles();
  // A GPU instance of profile "1g.18gb" and so on, in MIG mode; with a UUID it gets a compute
  // instance that fills it.
  void add_instance(unsigned int id, const std::string& profile, const std::string& mig_uuid);
  FakeMigDevice& add_compute(unsigned int instance, unsigned int id, const std::string& mig_uuid);
  void remove_instance(unsigned int id);  // leaves holes
};

inline std::vector<nvml::InstanceProfile> FakeGpu::h200_profiles() {
  struct Row {
    const char* name;
    unsigned int id, slices, instances, multiprocessors;
    unsigned long long memory_mib;
  };
  constexpr Row kRows[] = {
      {"MIG 1g.18gb", 19, 1, 7, 16, 16'384},   {"MIG 2g.35gb", 14, 2, 3, 32, 33'280},
      {"MIG 3g.71gb", 9, 3, 2, 60, 71'168},    {"MIG 4g.71gb", 5, 4, 1, 64, 71'168},
      {"MIG 7g.141gb", 0, 7, 1, 132, 143'360},
  };
  std::vector<nvml::InstanceProfile> out;
  for (const Row& row : kRows) {
    nvml::InstanceProfile profile{};
    profile.id = row.id;
    profile.slices = row.slices;
    profile.instances = row.instances;
    profile.multiprocessors = row.multiprocessors;
    profile.memory_mib = row.memory_mib;
    std::string_view(row.name).copy(profile.name, sizeof profile.name - 1);
    out.push_back(profile);
  }
  return out;
}

inline void FakeGpu::add_instance(unsigned int id, const std::string& profile,
                                  const std::string& mig_uuid) {
  mig = 1;
  for (const nvml::InstanceProfile& one : profiles)
    if (one.name == "MIG " + profile)
      instances.push_back({reinterpret_cast<nvml::Device>(this),
                           id,
                           one.id,
                           {0, one.slices == 7   ? 8u
                               : one.slices == 3 ? 4u
                                                 : one.slices}});
  CHECK(instances.back().id == id);
  if (!mig_uuid.empty()) add_compute(id, 0, mig_uuid);
}

inline FakeMigDevice& FakeGpu::add_compute(unsigned int instance, unsigned int id,
                                           const std::string& mig_uuid) {
  auto made = std::make_unique<FakeMigDevice>();
  *made = {instance, id, mig_uuid, name, {}};
  for (const nvml::InstanceInfo& info : instances)
    for (const nvml::InstanceProfile& profile : profiles)
      if (info.id == instance && info.profile_id == profile.id) {
        made->name += std::string(" ") + profile.name;
        made->attributes.multiprocessors = profile.multiprocessors;
        made->attributes.gpu_instance_slices = profile.slices;
        made->attributes.compute_instance_slices = profile.slices;
        made->attributes.memory_mib = profile.memory_mib;
      }
  const auto hole = std::find(mig_devices.begin(), mig_devices.end(), nullptr);
  return **(hole != mig_devices.end() ? &(*hole = std::move(made))
                                      : &mig_devices.emplace_back(std::move(made)));
}

inline void FakeGpu::remove_instance(unsigned int id) {
  std::erase_if(instances, [&](const auto& info) { return info.id == id; });
  for (auto& device : mig_devices)
    if (device && device->gpu_instance == id) device.reset();
}

struct FakeGpmSample {
  int step = -1;      // nothing yet
  int instance = -1;  // of MIG; -1: the whole GPU
};

struct FakeNvml {
  FakeNvml() {
    CHECK(alive == nullptr);
    alive = this;
  }
  ~FakeNvml() { alive = nullptr; }
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;

  std::vector<std::unique_ptr<FakeGpu>> gpus;
  std::map<std::string, nvml::Return> failing;  // by NVML's name of the call
  std::map<std::string, int> called;
  std::map<unsigned int, std::string> process_names;
  int initialised = 0, gpm_samples = 0;
  std::vector<std::pair<int, int>> gpm_windows;  // the steps that were compared

  FakeGpu& add_gpu() {
    gpus.push_back(std::make_unique<FakeGpu>());
    gpus.back()->uuid.back() = static_cast<char>('0' + gpus.size() - 1);
    return *gpus.back();
  }
  static NvmlFunctions functions();

  static inline FakeNvml* alive = nullptr;
};

namespace fake_nvml {

using nvml::Device;
using nvml::Return;

inline FakeNvml& world() { return *FakeNvml::alive; }
inline FakeGpu& gpu_of(Device device) { return *reinterpret_cast<FakeGpu*>(device); }
// Null for a handle that is, or was, none.
inline FakeMigDevice* mig_device_of(Device device) {
  for (const auto& gpu : world().gpus)
    for (const auto& one : gpu->mig_devices)
      if (one && one.get() == reinterpret_cast<FakeMigDevice*>(device)) return one.get();
  return nullptr;
}
inline bool is_gpu(Device device) {
  return std::any_of(world().gpus.begin(), world().gpus.end(), [&](const auto& gpu) {
    return gpu.get() == reinterpret_cast<FakeGpu*>(device);
  });
}
inline FakeGpmSample& sample_of(nvml::GpmSample s) { return *reinterpret_cast<FakeGpmSample*>(s); }

// What a call starts with: success, or what the test makes it fail with. "*" is every call.
inline Return called(const char* name) {
  ++world().called[name];
  for (const char* key : {name, "*"})
    if (const auto it = world().failing.find(key); it != world().failing.end()) return it->second;
  return Return::success;
}
#define FAKE_CALL(name) \
  if (const Return fails = called(name); fails != Return::success) return fails

inline Return give(char* out, unsigned int size, const std::string& text) {
  if (text.size() + 1 > size) return Return::insufficient_size;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return Return::success;
}
template <class T>
Return give_list(const std::vector<T>& list, unsigned int* count, T* out) {
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(list.size());
  if (room < list.size()) return Return::insufficient_size;
  std::copy(list.begin(), list.end(), out);
  return Return::success;
}
template <auto Member, class T>
Return give_member(const char* name, Device device, T* out) {
  FAKE_CALL(name);
  *out = gpu_of(device).*Member;
  return Return::success;
}

inline Return init() {
  FAKE_CALL("nvmlInit_v2");
  ++world().initialised;
  return Return::success;
}
inline Return shutdown() {
  --world().initialised;
  return Return::success;
}
inline const char* error_string(Return code) {
  switch (code) {
    case Return::gpu_is_lost:
      return "GPU is lost";
    case Return::no_permission:
      return "Insufficient Permissions";
    default:
      return "Unknown Error";
  }
}
inline Return driver_version(char* out, unsigned int size) {
  FAKE_CALL("nvmlSystemGetDriverVersion");
  return give(out, size, "570.124.06");
}
inline Return process_name(unsigned int pid, char* out, unsigned int size) {
  FAKE_CALL("nvmlSystemGetProcessName");
  const auto it = world().process_names.find(pid);
  return it == world().process_names.end() ? Return::not_found : give(out, size, it->second);
}
inline Return device_count(unsigned int* count) {
  FAKE_CALL("nvmlDeviceGetCount_v2");
  *count = static_cast<unsigned int>(world().gpus.size());
  return Return::success;
}
inline Return device_by_index(unsigned int index, Device* device) {
  FAKE_CALL("nvmlDeviceGetHandleByIndex_v2");
  if (world().failing.contains("open " + std::to_string(index)))
    return world().failing.at("open " + std::to_string(index));
  if (index >= world().gpus.size()) return Return::invalid_argument;
  *device = reinterpret_cast<Device>(world().gpus[index].get());
  return Return::success;
}
inline Return device_by_uuid(const char* uuid, Device* device) {
  FAKE_CALL("nvmlDeviceGetHandleByUUID");
  for (const auto& gpu : world().gpus)
    if (gpu->uuid == uuid) {
      *device = reinterpret_cast<Device>(gpu.get());
      return Return::success;
    }
  return Return::not_found;
}
inline Return index(Device device, unsigned int* out) {
  FAKE_CALL("nvmlDeviceGetIndex");
  *out = 0;
  while (world().gpus[*out].get() != &gpu_of(device)) ++*out;
  return Return::success;
}
inline Return uuid(Device device, char* out, unsigned int size) {
  FAKE_CALL("nvmlDeviceGetUUID");
  if (!is_gpu(device)) {
    const FakeMigDevice* mig = mig_device_of(device);
    return mig != nullptr ? give(out, size, mig->uuid) : Return::invalid_argument;
  }
  return give(out, size, gpu_of(device).uuid);
}
inline Return name(Device device, char* out, unsigned int size) {
  FAKE_CALL("nvmlDeviceGetName");
  if (const FakeMigDevice* mig = mig_device_of(device)) return give(out, size, mig->name);
  return give(out, size, gpu_of(device).name);
}
inline Return pci_info(Device device, nvml::PciInfo* out) {
  FAKE_CALL("nvmlDeviceGetPciInfo_v3");
  return give(out->bus_id, sizeof out->bus_id, gpu_of(device).pci_bus_id);
}
inline Return memory_clocks(Device device, unsigned int* count, unsigned int* out) {
  FAKE_CALL("nvmlDeviceGetSupportedMemoryClocks");
  return give_list(gpu_of(device).memory_clocks, count, out);
}
inline Return graphics_clocks(Device device, unsigned int memory_mhz, unsigned int* count,
                              unsigned int* out) {
  FAKE_CALL("nvmlDeviceGetSupportedGraphicsClocks");
  const FakeGpu& gpu = gpu_of(device);
  // Other memory clocks have other lists, which nobody should ask for.
  if (memory_mhz != gpu.memory_clocks.front()) return Return::not_found;
  return give_list(gpu.graphics_clocks, count, out);
}
inline Return power_limit_range(Device device, unsigned int* lowest, unsigned int* highest) {
  FAKE_CALL("nvmlDeviceGetPowerManagementLimitConstraints");
  *lowest = gpu_of(device).power_lowest;
  *highest = gpu_of(device).power_highest;
  return Return::success;
}
inline Return temperature_threshold(Device device, nvml::TemperatureThreshold which,
                                    unsigned int* out) {
  FAKE_CALL("nvmlDeviceGetTemperatureThreshold");
  if (which != nvml::TemperatureThreshold::slowdown) return Return::invalid_argument;
  *out = gpu_of(device).slowdown;
  return Return::success;
}
inline Return clock(Device device, nvml::ClockType type, unsigned int* out) {
  FAKE_CALL("nvmlDeviceGetClockInfo");
  *out = type == nvml::ClockType::sm ? gpu_of(device).sm_clock : gpu_of(device).memory_clock;
  return Return::success;
}
inline Return field_values(Device device, int count, nvml::FieldValue* fields) {
  FAKE_CALL("nvmlDeviceGetFieldValues");
  const FakeGpu& gpu = gpu_of(device);
  for (int i = 0; i < count; ++i) {
    nvml::FieldValue& field = fields[i];
    const bool average = field.field == nvml::kFieldPowerAverage;
    CHECK(average || field.field == nvml::kFieldPowerInstant);
    const unsigned int raw = average ? gpu.power_average : gpu.power_instant;
    field.code = average ? gpu.average_code : gpu.instant_code;
    field.type = gpu.power_type;
    std::memset(&field.value, 0xa5, sizeof field.value);  // what is not given is rubbish
    if (field.type == nvml::ValueType::real) field.value.real = raw;
    if (field.type == nvml::ValueType::uint) field.value.uint = raw;
    if (field.type == nvml::ValueType::ulonglong) field.value.ulonglong = raw;
  }
  return Return::success;
}
inline Return temperature(Device device, nvml::TemperatureSensor, unsigned int* out) {
  return give_member<&FakeGpu::temperature>("nvmlDeviceGetTemperature", device, out);
}
// Of a MIG device: the rows of its instances, which a driver need not name again.
inline std::vector<nvml::ProcessInfo> rows_on(const FakeMigDevice& mig,
                                              const std::vector<nvml::ProcessInfo>& all) {
  std::vector<nvml::ProcessInfo> out;
  for (nvml::ProcessInfo info : all) {
    if (info.gpu_instance != mig.gpu_instance || info.compute_instance != mig.compute_instance)
      continue;
    info.gpu_instance = info.compute_instance = nvml::kNoInstance;
    out.push_back(info);
  }
  return out;
}
inline Return compute_processes(Device device, unsigned int* count, nvml::ProcessInfo* out) {
  if (const FakeMigDevice* mig = mig_device_of(device)) {
    FAKE_CALL("compute processes of a MIG device");
    return give_list(rows_on(*mig, world().gpus.front()->compute), count, out);
  }
  FAKE_CALL("nvmlDeviceGetComputeRunningProcesses_v3");
  FakeGpu& gpu = gpu_of(device);
  for (int i = 0; i < gpu.processes_born; ++i)
    gpu.compute.push_back({static_cast<unsigned int>(gpu.compute.size() + 1), 1, 0, 0});
  return give_list(gpu.compute, count, out);
}
inline Return graphics_processes(Device device, unsigned int* count, nvml::ProcessInfo* out) {
  if (mig_device_of(device) != nullptr) return Return::not_supported;  // MIG draws nothing
  FAKE_CALL("nvmlDeviceGetGraphicsRunningProcesses_v3");
  return give_list(gpu_of(device).graphics, count, out);
}
inline Return process_utilization(Device device, nvml::ProcessUtilization* out, unsigned int* count,
                                  unsigned long long since) {
  FAKE_CALL("nvmlDeviceGetProcessUtilization");
  FakeGpu& gpu = gpu_of(device);
  gpu.asked_since = since;
  std::vector<nvml::ProcessUtilization> newer;
  for (const auto& sample : gpu.process_utilization)
    if (sample.time_us > since) newer.push_back(sample);
  return newer.empty() ? Return::not_found : give_list(newer, count, out);
}
inline Return lock_clocks(Device device, unsigned int lowest, unsigned int highest) {
  FAKE_CALL("nvmlDeviceSetGpuLockedClocks");
  gpu_of(device).writes.push_back(std::to_string(lowest) + ".." + std::to_string(highest));
  return Return::success;
}
inline Return reset_clocks(Device device) {
  FAKE_CALL("nvmlDeviceResetGpuLockedClocks");
  gpu_of(device).writes.push_back("reset");
  return Return::success;
}
inline Return set_power_limit(Device device, unsigned int milliwatts) {
  FAKE_CALL("nvmlDeviceSetPowerManagementLimit");
  gpu_of(device).power_limit = milliwatts;
  gpu_of(device).writes.push_back(std::to_string(milliwatts) + " mW");
  return Return::success;
}
inline Return application_clock(Device device, nvml::ClockType type, unsigned int* out) {
  FAKE_CALL("nvmlDeviceGetApplicationsClock");
  const FakeGpu& gpu = gpu_of(device);
  *out = type == nvml::ClockType::memory ? gpu.application_memory : gpu.application_graphics;
  return Return::success;
}
inline Return mig_mode(Device device, unsigned int* now, unsigned int* after_reset) {
  FAKE_CALL("nvmlDeviceGetMigMode");
  *now = *after_reset = gpu_of(device).mig;
  return Return::success;
}
inline Return mig_device_count(Device device, unsigned int* out) {
  FAKE_CALL("nvmlDeviceGetMaxMigDeviceCount");
  *out = gpu_of(device).mig != 0 ? 7 : 0;
  return Return::success;
}
inline Return mig_device(Device device, unsigned int index, Device* out) {
  FAKE_CALL("nvmlDeviceGetMigDeviceHandleByIndex");
  const auto& devices = gpu_of(device).mig_devices;
  if (index >= devices.size() || devices[index] == nullptr) return Return::not_found;
  *out = reinterpret_cast<Device>(devices[index].get());
  return Return::success;
}
template <auto Member, class T>
Return give_mig_member(const char* name, Device device, T* out) {
  FAKE_CALL(name);
  const FakeMigDevice* mig = mig_device_of(device);
  if (mig == nullptr) return Return::invalid_argument;
  *out = mig->*Member;
  return Return::success;
}
inline Return instance_profile(Device device, unsigned int index, nvml::InstanceProfile* out) {
  FAKE_CALL("nvmlDeviceGetGpuInstanceProfileInfoV");
  CHECK(out->version == nvml::kInstanceProfileV2);
  const auto& profiles = gpu_of(device).profiles;
  if (gpu_of(device).mig == 0 || index >= profiles.size()) return Return::not_supported;
  *out = profiles[index];
  return Return::success;
}
inline Return instances(Device device, unsigned int profile, nvml::Instance* out,
                        unsigned int* count) {
  FAKE_CALL("nvmlDeviceGetGpuInstances");
  *count = 0;
  for (nvml::InstanceInfo& info : gpu_of(device).instances)
    if (info.profile_id == profile) out[(*count)++] = reinterpret_cast<nvml::Instance>(&info);
  return Return::success;
}
inline Return instance_info(nvml::Instance instance, nvml::InstanceInfo* out) {
  FAKE_CALL("nvmlGpuInstanceGetInfo");
  *out = *reinterpret_cast<nvml::InstanceInfo*>(instance);
  return Return::success;
}
inline Return gpm_support(Device device, nvml::GpmSupport* out) {
  FAKE_CALL("nvmlGpmQueryDeviceSupport");
  CHECK(out->version == nvml::kGpmSupportVersion);
  out->supported = gpu_of(device).gpm_supported;
  return Return::success;
}
inline Return gpm_alloc(nvml::GpmSample* out) {
  FAKE_CALL("nvmlGpmSampleAlloc");
  *out = reinterpret_cast<nvml::GpmSample>(new FakeGpmSample);
  ++world().gpm_samples;
  return Return::success;
}
inline Return gpm_free(nvml::GpmSample sample) {
  delete &sample_of(sample);
  --world().gpm_samples;
  return Return::success;
}
inline Return gpm_sample(Device device, nvml::GpmSample sample) {
  FAKE_CALL("nvmlGpmSampleGet");
  sample_of(sample) = {gpu_of(device).gpm_step++, -1};
  return Return::success;
}
inline Return gpm_mig_sample(Device device, unsigned int instance, nvml::GpmSample sample) {
  FAKE_CALL("nvmlGpmMigSampleGet");
  const FakeGpu& gpu = gpu_of(device);
  if (const auto code = gpu.instance_gpm_codes.find(instance); code != gpu.instance_gpm_codes.end())
    return code->second;
  const bool there = std::any_of(gpu.instances.begin(), gpu.instances.end(),
                                 [&](const auto& info) { return info.id == instance; });
  if (!there) return Return::invalid_argument;
  sample_of(sample) = {gpu_of(device).gpm_step++, static_cast<int>(instance)};
  return Return::success;
}
inline Return gpm_metrics(nvml::GpmMetrics* query) {
  FAKE_CALL("nvmlGpmMetricsGet");
  CHECK(query->version == nvml::kGpmMetricsVersion && query->count <= nvml::kGpmMetricMax);
  const int from = sample_of(query->older).step, to = sample_of(query->newer).step;
  CHECK(from >= 0 && to > from);
  const int instance = sample_of(query->newer).instance;
  CHECK(instance == sample_of(query->older).instance);
  if (instance < 0) world().gpm_windows.emplace_back(from, to);
  const FakeGpu& gpu = *world().gpus.front();
  for (unsigned int i = 0; i < query->count; ++i) {
    nvml::GpmMetric& metric = query->metrics[i];
    const auto code = gpu.gpm_codes.find(metric.id);
    metric.code = code == gpu.gpm_codes.end() ? Return::success : code->second;
    metric.value = gpu.gpm_values.contains(metric.id) ? gpu.gpm_values.at(metric.id) : 0;
    const auto sm = gpu.instance_sm.find(static_cast<unsigned int>(instance));
    if (instance >= 0 && sm != gpu.instance_sm.end())
      metric.value = metric.id == 2 ? sm->second : 0;
  }
  return Return::success;
}
#undef FAKE_CALL

inline void add_mig(NvmlFunctions& all) {
  all.mig_device_count = mig_device_count;
  all.mig_device = mig_device;
  all.gpu_instance_id = [](Device d, unsigned int* out) {
    return give_mig_member<&FakeMigDevice::gpu_instance>("nvmlDeviceGetGpuInstanceId", d, out);
  };
  all.compute_instance_id = [](Device d, unsigned int* out) {
    const char* name = "nvmlDeviceGetComputeInstanceId";
    return give_mig_member<&FakeMigDevice::compute_instance>(name, d, out);
  };
  all.attributes = [](Device d, nvml::Attributes* out) {
    return give_mig_member<&FakeMigDevice::attributes>("nvmlDeviceGetAttributes_v2", d, out);
  };
  all.instance_profile = instance_profile;
  all.instances = instances;
  all.instance_info = instance_info;
}

}  // namespace fake_nvml

inline NvmlFunctions FakeNvml::functions() {
  namespace f = fake_nvml;
  using nvml::Device;
  NvmlFunctions all;
  all.init = f::init;
  all.shutdown = f::shutdown;
  all.error_string = f::error_string;
  all.driver_version = f::driver_version;
  all.process_name = f::process_name;
  all.device_count = f::device_count;
  all.device_by_index = f::device_by_index;
  all.device_by_uuid = f::device_by_uuid;
  all.index = f::index;
  all.uuid = f::uuid;
  all.name = f::name;
  all.pci_info = f::pci_info;
  all.architecture = [](Device d, unsigned int* out) {
    return f::give_member<&FakeGpu::architecture>("nvmlDeviceGetArchitecture", d, out);
  };
  all.memory_clocks = f::memory_clocks;
  all.graphics_clocks = f::graphics_clocks;
  all.power_limit_range = f::power_limit_range;
  all.power_limit_default = [](Device d, unsigned int* out) {
    const char* name = "nvmlDeviceGetPowerManagementDefaultLimit";
    return f::give_member<&FakeGpu::power_default>(name, d, out);
  };
  all.temperature_threshold = f::temperature_threshold;
  all.persistence_mode = [](Device d, nvml::EnableState* out) {
    return f::give_member<&FakeGpu::persistence>("nvmlDeviceGetPersistenceMode", d, out);
  };
  all.utilization = [](Device d, nvml::Utilization* out) {
    return f::give_member<&FakeGpu::utilization>("nvmlDeviceGetUtilizationRates", d, out);
  };
  all.clock = f::clock;
  all.power_usage = [](Device d, unsigned int* out) {
    return f::give_member<&FakeGpu::power_usage>("nvmlDeviceGetPowerUsage", d, out);
  };
  all.field_values = f::field_values;
  all.throttle_reasons = [](Device d, unsigned long long* out) {
    const char* name = "nvmlDeviceGetCurrentClocksEventReasons";
    return f::give_member<&FakeGpu::throttle_reasons>(name, d, out);
  };
  all.temperature = f::temperature;
  all.energy = [](Device d, unsigned long long* out) {
    return f::give_member<&FakeGpu::energy>("nvmlDeviceGetTotalEnergyConsumption", d, out);
  };
  all.compute_processes = f::compute_processes;
  all.graphics_processes = f::graphics_processes;
  all.process_utilization = f::process_utilization;
  all.lock_clocks = f::lock_clocks;
  all.reset_clocks = f::reset_clocks;
  all.set_power_limit = f::set_power_limit;
  all.power_limit = [](Device d, unsigned int* out) {
    return f::give_member<&FakeGpu::power_limit>("nvmlDeviceGetPowerManagementLimit", d, out);
  };
  all.application_clock = f::application_clock;
  all.mig_mode = f::mig_mode;
  f::add_mig(all);
  all.gpm_support = f::gpm_support;
  all.gpm_alloc = f::gpm_alloc;
  all.gpm_free = f::gpm_free;
  all.gpm_sample = f::gpm_sample;
  all.gpm_mig_sample = f::gpm_mig_sample;
  all.gpm_metrics = f::gpm_metrics;
  return all;
}

}  // namespace derate
