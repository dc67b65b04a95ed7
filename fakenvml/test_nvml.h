// For tests of what reads NVML: fakenvml's library and its server in this process, showing what a
// test fills in. Before each call the figures of the structs below go into the server's state and
// the faults into its list; the answers are the library's.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/nvml/nvml_library.h"
#include "device/sim/sim_mig.h"
#include "fakenvml/library_path.h"
#include "fakenvml/test_served.h"

namespace derate {

// A compute instance: what NVML calls a MIG device.
struct StagedMigDevice {
  unsigned int gpu_instance = 0, compute_instance = 0;
  std::string uuid, name;
  nvml::Attributes attributes{};
};

// An H200: what it is and how it is set.
struct StagedBoard {
  std::string uuid = "GPU-00000000-0000-0000-0000-000000000000";
  std::string name = "NVIDIA H200";
  std::string pci_bus_id = "00000000:65:00.0";
  unsigned int architecture = nvml::kArchHopper;
  std::vector<unsigned int> memory_clocks{3201, 1593};
  std::vector<unsigned int> graphics_clocks{1980, 1965, 1965, 345};
  unsigned int power_lowest = 200'000, power_highest = 700'000, power_default = 700'000;
  unsigned int power_limit = 650'000, application_graphics = 1830, application_memory = 3201;
  unsigned int slowdown = 87;
  nvml::EnableState persistence = nvml::EnableState::on;
  std::vector<std::string> writes;
};

struct StagedSensors {
  nvml::Utilization utilization{97, 41};
  unsigned int sm_clock = 1755, memory_clock = 3201;
  unsigned int power_usage = 512'340, power_average = 511'000, power_instant = 600'500;
  nvml::Return average_code = nvml::Return::success, instant_code = nvml::Return::success;
  nvml::ValueType power_type = nvml::ValueType::uint;
  unsigned long long throttle_reasons = 0x4, energy = 123'456'789;
  unsigned int temperature = 61;
};

struct StagedProcesses {
  std::vector<nvml::ProcessInfo> compute, graphics;
  std::vector<nvml::ProcessUtilization> process_utilization;
  int processes_born = 0;  // added to `compute`, one a call, before the call answers
  unsigned long long asked_since = 0;
};

struct StagedGpm {
  unsigned int gpm_supported = 1;
  int gpm_step = 0;  // counts samples
  std::map<unsigned int, double> gpm_values{{1, 100}, {2, 90}, {3, 40}, {4, 10}, {5, 55}, {10, 30},
                                            {11, 1},  {12, 2}, {13, 3}, {20, 4}, {21, 5}};
  std::map<unsigned int, nvml::Return> gpm_codes;
  std::map<unsigned int, double> instance_sm;  // metric 2 of an instance, in place of the GPU's
  std::map<unsigned int, nvml::Return> instance_gpm_codes;
};

struct StagedGpu : StagedBoard, StagedSensors, StagedProcesses, StagedGpm {
  explicit StagedGpu(nvml::Device device) : handle(device) {}

  nvml::Device handle;
  unsigned int mig = 0;
  struct Instance {
    unsigned int id;
    std::size_t profile;  // of the chip
  };
  std::vector<Instance> instances;
  std::vector<std::unique_ptr<StagedMigDevice>> mig_devices;  // null: a hole

  // A GPU instance of profile "1g.18gb" and so on, in MIG mode; with a UUID it gets a compute
  // instance that fills it.
  void add_instance(unsigned int id, const std::string& profile, const std::string& mig_uuid);
  StagedMigDevice& add_compute(unsigned int instance, unsigned int id, const std::string& mig_uuid);
  void remove_instance(unsigned int id);  // leaves holes
};

inline std::span<const MigProfile> staged_profiles() {
  return mig_profiles(**find_sim_chip("H200"));
}

inline void StagedGpu::add_instance(unsigned int id, const std::string& profile,
                                    const std::string& mig_uuid) {
  mig = 1;
  const auto profiles = staged_profiles();
  const auto at = std::find_if(profiles.begin(), profiles.end(),
                               [&](const MigProfile& one) { return one.name == profile; });
  CHECK(at != profiles.end());
  instances.push_back({id, static_cast<std::size_t>(at - profiles.begin())});
  if (!mig_uuid.empty()) add_compute(id, 0, mig_uuid);
}

inline StagedMigDevice& StagedGpu::add_compute(unsigned int instance, unsigned int id,
                                               const std::string& mig_uuid) {
  auto made = std::make_unique<StagedMigDevice>();
  *made = {instance, id, mig_uuid, name, {}};
  for (const Instance& one : instances) {
    if (one.id != instance) continue;
    const MigProfile& profile = staged_profiles()[one.profile];
    made->name += std::string(" MIG ") + profile.name;
    made->attributes.multiprocessors = static_cast<unsigned int>(profile.multiprocessors);
    made->attributes.gpu_instance_slices = made->attributes.compute_instance_slices =
        static_cast<unsigned int>(profile.slices);
    made->attributes.memory_mib = static_cast<unsigned long long>(profile.memory_gigabytes * 1024);
  }
  const auto hole = std::find(mig_devices.begin(), mig_devices.end(), nullptr);
  return **(hole != mig_devices.end() ? &(*hole = std::move(made))
                                      : &mig_devices.emplace_back(std::move(made)));
}

inline void StagedGpu::remove_instance(unsigned int id) {
  std::erase_if(instances, [&](const Instance& one) { return one.id == id; });
  for (auto& device : mig_devices)
    if (device && device->gpu_instance == id) device.reset();
}

class StagedNvml {
 public:
  StagedNvml();
  ~StagedNvml();
  StagedNvml(const StagedNvml&) = delete;
  StagedNvml& operator=(const StagedNvml&) = delete;

  std::vector<std::unique_ptr<StagedGpu>> gpus;
  // By NVML's name of the call, "*" for all of them; "open N" for opening that GPU; and
  // kProcessesOfMig.
  std::map<std::string, nvml::Return> failing;
  std::map<std::string, int> called;
  std::map<unsigned int, std::string> process_names;
  int initialised = 0, gpm_samples = 0;
  std::vector<std::pair<int, int>> gpm_windows;  // the steps that were compared

  static constexpr const char* kProcessesOfMig = "compute processes of a MIG device";

  StagedGpu& add_gpu();
  // Each stages, counts and calls the library.
  static NvmlFunctions functions();

 private:
  static constexpr std::size_t kGpus = 3;
  static inline StagedNvml* alive = nullptr;

  template <auto Member>
  static const char* name_of();
  template <auto Member, class Of, class... A>
  static NvmlFunctions::Call<A...> hook(NvmlFunctions::Call<A...> Of::*);
  template <auto... Members>
  static NvmlFunctions hooks();
  static const NvmlFunctions& library();

  StagedGpu* gpu_of(nvml::Device device);
  void stage(bool faults, bool processes = true);
  fakenvml::GpuIdentity identity(std::size_t at) const;
  fakenvml::GpuNow sensors(std::size_t at) const;
  fakenvml::GpuProcesses processes(const StagedGpu& gpu) const;
  fakenvml::GpuInstances instances(const StagedGpu& gpu) const;
  fakenvml::InjectedReadings injected(const StagedGpu& gpu) const;
  fakenvml::CallFaults faults() const;

  // What is particular to a function, before it is called and when it has succeeded.
  template <auto Member, class... A>
  const char* before(const char* name, A... arguments);
  template <auto Member, class... A>
  void after(A... arguments);

  std::mutex mutex_;
  fakenvml::Served served_;
  fakenvml::State* state_ = nullptr;
  std::map<nvml::GpmSample, std::pair<int, bool>> taken_;  // the step, and whether of a whole GPU
};

inline StagedNvml::StagedNvml()
    : served_(std::vector<const SimChip*>(kGpus, *find_sim_chip("H200"))) {
  CHECK(alive == nullptr);
  alive = this;
  const UniqueFd file(
      ::open(fakenvml::state_path(served_.directory()).c_str(), O_RDWR | O_CLOEXEC));
  CHECK(file.valid());
  void* const mapped =
      ::mmap(nullptr, sizeof *state_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  CHECK(mapped != MAP_FAILED);
  state_ = static_cast<fakenvml::State*>(mapped);
  state_->injects.store(1);
  stage(false);
}

inline StagedNvml::~StagedNvml() {
  alive = nullptr;
  ::munmap(state_, sizeof *state_);
}

inline StagedGpu& StagedNvml::add_gpu() {
  CHECK(gpus.size() < kGpus);
  // A handle stands for a place in the list, whatever GPU is there.
  state_->gpus = static_cast<std::uint32_t>(gpus.size() + 1);
  CHECK(library().init() == nvml::Return::success);
  nvml::Device handle{};
  CHECK(library().device_by_index(static_cast<unsigned int>(gpus.size()), &handle) ==
        nvml::Return::success);
  CHECK(library().shutdown() == nvml::Return::success);
  gpus.push_back(std::make_unique<StagedGpu>(handle));
  gpus.back()->uuid.back() = static_cast<char>('0' + gpus.size() - 1);
  return *gpus.back();
}

inline StagedGpu* StagedNvml::gpu_of(nvml::Device device) {
  for (const auto& gpu : gpus)
    if (gpu->handle == device) return gpu.get();
  return nullptr;
}

// --- what the library shows ----------------------------------------------------------------------

inline fakenvml::GpuIdentity StagedNvml::identity(std::size_t at) const {
  const StagedGpu& gpu = *gpus[at];
  fakenvml::GpuIdentity out = state_->identity[at];
  fakenvml::put_text(out.name, gpu.name);
  fakenvml::put_text(out.uuid, gpu.uuid);
  fakenvml::put_text(out.pci_bus_id, gpu.pci_bus_id);
  out.architecture = gpu.architecture;
  out.clock_count = static_cast<std::uint32_t>(gpu.graphics_clocks.size());
  std::reverse_copy(gpu.graphics_clocks.begin(), gpu.graphics_clocks.end(), out.sm_clocks_mhz);
  out.memory_clock_mhz = gpu.memory_clocks.front();
  out.other_memory_clock_count = static_cast<std::uint32_t>(gpu.memory_clocks.size() - 1);
  for (std::size_t i = 1; i < gpu.memory_clocks.size(); ++i)
    out.other_memory_clocks[i - 1] = {gpu.memory_clocks[i], 0, {}};
  out.power_lowest_mw = gpu.power_lowest;
  out.power_highest_mw = gpu.power_highest;
  out.power_factory_mw = gpu.power_default;
  out.slowdown_celsius = gpu.slowdown;
  out.has_activity = gpu.gpm_supported;
  return out;
}

inline fakenvml::GpuNow StagedNvml::sensors(std::size_t at) const {
  const StagedGpu& gpu = *gpus[at];
  fakenvml::GpuNow out = *state_->gpu[at].now.read();
  out.mig = gpu.mig;
  out.gpu_percent = gpu.utilization.gpu;
  out.memory_percent = gpu.utilization.memory;
  out.sm_clock_mhz = gpu.sm_clock;
  out.memory_clock_mhz = gpu.memory_clock;
  out.power_mw = gpu.power_usage;
  out.temperature_celsius = gpu.temperature;
  out.energy_mj = gpu.energy;
  out.throttle_reasons = gpu.throttle_reasons;
  out.application_sm_mhz = gpu.application_graphics;
  out.application_memory_mhz = gpu.application_memory;
  out.power_limit_mw = gpu.power_limit;
  out.modes.persistence = gpu.persistence == nvml::EnableState::on ? 1 : 0;
  return out;
}

inline fakenvml::GpuProcesses StagedNvml::processes(const StagedGpu& gpu) const {
  fakenvml::GpuProcesses out{};
  const auto add = [&](const nvml::ProcessInfo& info, bool draws) {
    CHECK(out.count < fakenvml::kProcessesMax);
    fakenvml::ProcessNow& row = out.list[out.count++];
    row.pid = info.pid;
    row.memory_bytes = info.used_memory;
    row.gpu_instance = info.gpu_instance;
    row.compute_instance = info.compute_instance;
    row.draws = draws ? 1 : 0;
    if (const auto name = process_names.find(info.pid); name != process_names.end())
      fakenvml::put_text(row.name, name->second);
  };
  for (const nvml::ProcessInfo& info : gpu.compute) add(info, false);
  for (const nvml::ProcessInfo& info : gpu.graphics) add(info, true);
  for (const nvml::ProcessUtilization& one : gpu.process_utilization) {
    CHECK(out.sample_count < fakenvml::kProcessSamplesMax);
    out.samples[out.sample_count++] = {one.time_us, one.pid, one.sm, one.memory, 0};
  }
  return out;
}

inline fakenvml::GpuInstances StagedNvml::instances(const StagedGpu& gpu) const {
  fakenvml::GpuInstances out{};
  CHECK(std::max(gpu.instances.size(), gpu.mig_devices.size()) <= fakenvml::kInstancesMax);
  for (const StagedGpu::Instance& one : gpu.instances) {
    fakenvml::InstanceNow& to = out.list[out.count++];
    to.id = one.id;
    to.profile = static_cast<std::uint32_t>(one.profile);
  }
  for (std::size_t i = 0; i < gpu.mig_devices.size(); ++i) {
    if (gpu.mig_devices[i] == nullptr) continue;
    const StagedMigDevice& from = *gpu.mig_devices[i];
    fakenvml::MigDeviceNow& to = out.devices[i];
    fakenvml::put_text(to.uuid, from.uuid);
    fakenvml::put_text(to.profile, from.name.substr(from.name.find(" MIG ") + 5));
    to.there = 1;
    to.gpu_instance = from.gpu_instance;
    to.compute_instance = from.compute_instance;
    to.slices = from.attributes.compute_instance_slices;
    to.gpu_slices = from.attributes.gpu_instance_slices;
    to.multiprocessors = from.attributes.multiprocessors;
    to.memory_mib = from.attributes.memory_mib;
  }
  return out;
}

inline fakenvml::InjectedReadings StagedNvml::injected(const StagedGpu& gpu) const {
  using fakenvml::Reading;
  fakenvml::InjectedReadings out{};
  const auto add = [&](Reading what, unsigned int id, unsigned int instance,
                       nvml::Return code) -> fakenvml::InjectedReading& {
    CHECK(out.count < fakenvml::kReadingsMax);
    fakenvml::InjectedReading& one = out.list[out.count++];
    one.what = what;
    one.id = id;
    one.instance = instance;
    one.code = static_cast<std::uint32_t>(code);
    one.type = static_cast<std::uint32_t>(gpu.power_type);
    return one;
  };
  const auto metrics = [&](unsigned int instance, std::optional<double> sm) {
    for (const auto& [id, value] : gpu.gpm_values) {
      const auto code = gpu.gpm_codes.find(id);
      add(Reading::metric, id, instance,
          code == gpu.gpm_codes.end() ? nvml::Return::success : code->second)
          .number = !sm       ? value
                    : id == 2 ? *sm
                              : 0;
    }
  };
  add(Reading::field, nvml::kFieldPowerAverage, fakenvml::kNone, gpu.average_code).raw =
      gpu.power_average;
  add(Reading::field, nvml::kFieldPowerInstant, fakenvml::kNone, gpu.instant_code).raw =
      gpu.power_instant;
  metrics(fakenvml::kNone, std::nullopt);
  for (const auto& [instance, sm] : gpu.instance_sm) metrics(instance, sm);
  for (const auto& [instance, code] : gpu.instance_gpm_codes)
    add(Reading::instance_sample, 0, instance, code);
  return out;
}

inline fakenvml::CallFaults StagedNvml::faults() const {
  using fakenvml::Handles;
  constexpr const char* kComputeProcesses = "nvmlDeviceGetComputeRunningProcesses_v2";
  fakenvml::CallFaults out{};
  std::uint32_t count = 0;
  for (const auto& [name, code] : failing) {
    fakenvml::CallFault& fault = out.list[count++];
    std::string call = name;
    Handles handles = call == kComputeProcesses ? Handles::gpus : Handles::any;
    fault.gpu = fakenvml::kEveryGpu;
    if (call == kProcessesOfMig) {
      call = kComputeProcesses;
      handles = Handles::mig_devices;
    }
    if (call.starts_with("open ")) {
      fault.gpu = static_cast<std::uint32_t>(call.back() - '0');
      call = "nvmlDeviceGetHandleByIndex_v2";
    }
    fakenvml::put_text(fault.call, call);
    fault.handles = static_cast<std::uint32_t>(handles);
    fault.id = count;
    fault.code = static_cast<std::uint32_t>(code);
  }
  return out;
}

// Writes only what has changed: a box of the state is some ten thousand bytes.
template <class T>
void write_changed(fakenvml::SeqlockBox<T>& box, const T& value) {
  const auto there = box.read();
  if (!there || std::memcmp(&*there, &value, sizeof value) != 0) box.write(value);
}

inline void StagedNvml::stage(bool with_faults, bool with_processes) {
  state_->gpus = static_cast<std::uint32_t>(gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const StagedGpu& gpu = *gpus[i];
    state_->identity[i] = identity(i);
    write_changed(state_->gpu[i].now, sensors(i));
    if (with_processes) write_changed(state_->gpu[i].processes, processes(gpu));
    write_changed(state_->gpu[i].instances, instances(gpu));
    write_changed(state_->gpu[i].injected, injected(gpu));
  }
  write_changed(state_->faults, with_faults ? faults() : fakenvml::CallFaults{});
  state_->call_faults.store(with_faults ? static_cast<std::uint32_t>(failing.size()) : 0);
}

// --- calls ---------------------------------------------------------------------------------------

inline const NvmlFunctions& StagedNvml::library() {
  static const NvmlFunctions kLibrary = [] {
    void* const handle = ::dlopen(fakenvml::kLibraryPath, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle != nullptr);
    return *resolve_nvml([handle](const char* name) { return ::dlsym(handle, name); });
  }();
  return kLibrary;
}

template <auto A, auto B>
inline constexpr bool kSameMember = false;
template <auto A>
inline constexpr bool kSameMember<A, A> = true;

template <auto Member, class... A>
const char* StagedNvml::before(const char* name, A... arguments) {
  const auto all = std::make_tuple(arguments...);
  if constexpr (kSameMember<Member, &NvmlFunctions::compute_processes>) {
    StagedGpu* const gpu = gpu_of(std::get<0>(all));
    if (gpu == nullptr) return kProcessesOfMig;
    for (int i = 0; i < gpu->processes_born; ++i)
      gpu->compute.push_back({static_cast<unsigned int>(gpu->compute.size() + 1), 1, 0, 0});
  }
  if constexpr (kSameMember<Member, &NvmlFunctions::process_utilization>)
    gpu_of(std::get<0>(all))->asked_since = std::get<3>(all);
  return name;
}

template <auto Member, class... A>
void StagedNvml::after(A... arguments) {
  const auto all = std::make_tuple(arguments...);
  if constexpr (kSameMember<Member, &NvmlFunctions::init>) ++initialised;
  if constexpr (kSameMember<Member, &NvmlFunctions::shutdown>) --initialised;
  if constexpr (kSameMember<Member, &NvmlFunctions::gpm_alloc>) ++gpm_samples;
  if constexpr (kSameMember<Member, &NvmlFunctions::gpm_free>) --gpm_samples;
  if constexpr (kSameMember<Member, &NvmlFunctions::gpm_sample>)
    taken_[std::get<1>(all)] = {gpu_of(std::get<0>(all))->gpm_step++, true};
  if constexpr (kSameMember<Member, &NvmlFunctions::gpm_mig_sample>)
    taken_[std::get<2>(all)] = {gpu_of(std::get<0>(all))->gpm_step++, false};
  if constexpr (kSameMember<Member, &NvmlFunctions::gpm_metrics>) {
    const auto [from, whole] = taken_.at(std::get<0>(all)->older);
    const auto [to, also_whole] = taken_.at(std::get<0>(all)->newer);
    CHECK(from >= 0 && to > from && whole == also_whole);
    if (whole) gpm_windows.emplace_back(from, to);
  }
  if constexpr (kSameMember<Member, &NvmlFunctions::lock_clocks>)
    gpu_of(std::get<0>(all))
        ->writes.push_back(std::to_string(std::get<1>(all)) + ".." +
                           std::to_string(std::get<2>(all)));
  if constexpr (kSameMember<Member, &NvmlFunctions::reset_clocks>)
    gpu_of(std::get<0>(all))->writes.push_back("reset");
  if constexpr (kSameMember<Member, &NvmlFunctions::set_power_limit>) {
    StagedGpu& gpu = *gpu_of(std::get<0>(all));
    gpu.power_limit = std::get<1>(all);
    gpu.writes.push_back(std::to_string(gpu.power_limit) + " mW");
  }
}

template <auto Member>
const char* StagedNvml::name_of() {
  static const char* const kName = [] {
    int address = 0;
    for (const NvmlSymbol& symbol : nvml_symbols()) {
      NvmlFunctions only;
      symbol.store(only, &address);
      if (only.*Member != nullptr) return symbol.name;
    }
    return "";
  }();
  return kName;
}

template <auto Member, class Of, class... A>
NvmlFunctions::Call<A...> StagedNvml::hook(NvmlFunctions::Call<A...> Of::*) {
  return [](A... arguments) {
    StagedNvml& world = *alive;
    const std::scoped_lock lock(world.mutex_);
    // What gives back is not counted and never fails.
    constexpr bool kGivesBack = kSameMember<Member, &NvmlFunctions::shutdown> ||
                                kSameMember<Member, &NvmlFunctions::gpm_free> ||
                                kSameMember<Member, &NvmlFunctions::event_set_free>;
    const char* const name = world.before<Member>(name_of<Member>(), arguments...);
    if (!kGivesBack) ++world.called[name];
    // A list of processes is large, and most calls do not look at it.
    constexpr bool kListsProcesses = kSameMember<Member, &NvmlFunctions::compute_processes> ||
                                     kSameMember<Member, &NvmlFunctions::graphics_processes> ||
                                     kSameMember<Member, &NvmlFunctions::process_utilization> ||
                                     kSameMember<Member, &NvmlFunctions::processes_utilization> ||
                                     kSameMember<Member, &NvmlFunctions::process_name> ||
                                     kSameMember<Member, &NvmlFunctions::memory> ||
                                     kSameMember<Member, &NvmlFunctions::memory_v1>;
    world.stage(!kGivesBack, kListsProcesses);
    const nvml::Return code = (library().*Member)(arguments...);
    if (code == nvml::Return::success) world.after<Member>(arguments...);
    return code;
  };
}

template <auto... Members>
NvmlFunctions StagedNvml::hooks() {
  NvmlFunctions out;
  ((out.*Members = hook<Members>(Members)), ...);
  out.error_string = library().error_string;
  return out;
}

inline NvmlFunctions StagedNvml::functions() {
  using F = NvmlFunctions;
  return hooks<&F::init, &F::shutdown, &F::driver_version, &F::process_name, &F::device_count,
               &F::device_by_index, &F::device_by_uuid, &F::index, &F::uuid, &F::name, &F::pci_info,
               &F::architecture, &F::memory_clocks, &F::graphics_clocks, &F::power_limit_range,
               &F::power_limit_default, &F::temperature_threshold, &F::persistence_mode,
               &F::utilization, &F::clock, &F::power_usage, &F::field_values, &F::throttle_reasons,
               &F::temperature, &F::energy, &F::compute_processes, &F::graphics_processes,
               &F::process_utilization, &F::processes_utilization, &F::clock_offsets,
               &F::power_mizer, &F::power_profiles, &F::power_profile_table, &F::display_active,
               &F::virtualisation_mode, &F::memory, &F::memory_v1, &F::pcie_generation,
               &F::pcie_lanes, &F::pcie_most_generation, &F::pcie_most_lanes, &F::fan, &F::encoder,
               &F::decoder, &F::event_set_create, &F::event_set_free, &F::event_register,
               &F::event_wait, &F::lock_clocks, &F::lock_memory, &F::reset_memory, &F::reset_clocks,
               &F::set_power_limit, &F::power_limit, &F::application_clock, &F::mig_mode,
               &F::mig_device_count, &F::mig_device, &F::gpu_instance_id, &F::compute_instance_id,
               &F::attributes, &F::instance_profile, &F::instances, &F::instance_info,
               &F::gpm_support, &F::gpm_alloc, &F::gpm_free, &F::gpm_sample, &F::gpm_mig_sample,
               &F::gpm_metrics>();
}

}  // namespace derate
