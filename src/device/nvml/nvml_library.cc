#include "device/nvml/nvml_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <iterator>

#include "base/check.h"

namespace derate {
namespace {

using nvml::Return;

constexpr const char* kDefaultLibrary = "libnvidia-ml.so.1";
constexpr bool kRequired = true, kOptional = false;

template <auto Member>
void store(NvmlFunctions& functions, void* symbol) {
  using Function = std::remove_reference_t<decltype(functions.*Member)>;
  functions.*Member = reinterpret_cast<Function>(symbol);
}

template <auto Member>
bool present(const NvmlFunctions& functions) {
  return functions.*Member != nullptr;
}

template <auto Member>
constexpr NvmlSymbol symbol(const char* name, bool required, const char* older_name = nullptr) {
  return {name, older_name, required, store<Member>, present<Member>};
}

using F = NvmlFunctions;
// Required is what names a GPU; a sensor that is missing is only an empty field.
constexpr NvmlSymbol kSymbols[] = {
    symbol<&F::init>("nvmlInit_v2", kRequired),
    symbol<&F::shutdown>("nvmlShutdown", kRequired),
    symbol<&F::error_string>("nvmlErrorString", kOptional),
    symbol<&F::driver_version>("nvmlSystemGetDriverVersion", kOptional),
    symbol<&F::process_name>("nvmlSystemGetProcessName", kOptional),
    symbol<&F::device_count>("nvmlDeviceGetCount_v2", kRequired),
    symbol<&F::device_by_index>("nvmlDeviceGetHandleByIndex_v2", kRequired),
    symbol<&F::device_by_uuid>("nvmlDeviceGetHandleByUUID", kOptional),
    symbol<&F::index>("nvmlDeviceGetIndex", kOptional),
    symbol<&F::uuid>("nvmlDeviceGetUUID", kRequired),
    symbol<&F::name>("nvmlDeviceGetName", kOptional),
    symbol<&F::pci_info>("nvmlDeviceGetPciInfo_v3", kOptional),
    symbol<&F::minor_number>("nvmlDeviceGetMinorNumber", kOptional),
    symbol<&F::architecture>("nvmlDeviceGetArchitecture", kOptional),
    symbol<&F::memory_clocks>("nvmlDeviceGetSupportedMemoryClocks", kOptional),
    symbol<&F::graphics_clocks>("nvmlDeviceGetSupportedGraphicsClocks", kOptional),
    symbol<&F::power_limit_range>("nvmlDeviceGetPowerManagementLimitConstraints", kOptional),
    symbol<&F::power_limit_default>("nvmlDeviceGetPowerManagementDefaultLimit", kOptional),
    symbol<&F::temperature_threshold>("nvmlDeviceGetTemperatureThreshold", kOptional),
    symbol<&F::persistence_mode>("nvmlDeviceGetPersistenceMode", kOptional),
    symbol<&F::utilization>("nvmlDeviceGetUtilizationRates", kOptional),
    symbol<&F::clock>("nvmlDeviceGetClockInfo", kOptional),
    symbol<&F::power_usage>("nvmlDeviceGetPowerUsage", kOptional),
    symbol<&F::field_values>("nvmlDeviceGetFieldValues", kOptional),
    symbol<&F::throttle_reasons>("nvmlDeviceGetCurrentClocksEventReasons", kOptional,
                                 "nvmlDeviceGetCurrentClocksThrottleReasons"),
    symbol<&F::temperature>("nvmlDeviceGetTemperature", kOptional),
    symbol<&F::energy>("nvmlDeviceGetTotalEnergyConsumption", kOptional),
    symbol<&F::compute_processes>("nvmlDeviceGetComputeRunningProcesses_v2", kOptional),
    symbol<&F::graphics_processes>("nvmlDeviceGetGraphicsRunningProcesses_v2", kOptional),
    symbol<&F::compute_processes_v3>("nvmlDeviceGetComputeRunningProcesses_v3", kOptional),
    symbol<&F::graphics_processes_v3>("nvmlDeviceGetGraphicsRunningProcesses_v3", kOptional),
    symbol<&F::protected_memory>("nvmlDeviceGetConfComputeMemSizeInfo", kOptional),
    symbol<&F::process_details>("nvmlDeviceGetRunningProcessDetailList", kOptional),
    symbol<&F::process_utilization>("nvmlDeviceGetProcessUtilization", kOptional),
    symbol<&F::processes_utilization>("nvmlDeviceGetProcessesUtilizationInfo", kOptional),
    symbol<&F::clock_offsets>("nvmlDeviceGetClockOffsets", kOptional),
    symbol<&F::power_mizer>("nvmlDeviceGetPowerMizerMode_v1", kOptional),
    symbol<&F::power_profiles>("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", kOptional),
    symbol<&F::power_profile_table>("nvmlDeviceWorkloadPowerProfileGetProfilesInfo", kOptional),
    symbol<&F::display_active>("nvmlDeviceGetDisplayActive", kOptional),
    symbol<&F::virtualisation_mode>("nvmlDeviceGetVirtualizationMode", kOptional),
    symbol<&F::memory>("nvmlDeviceGetMemoryInfo_v2", kOptional),
    symbol<&F::memory_v1>("nvmlDeviceGetMemoryInfo", kOptional),
    symbol<&F::pcie_generation>("nvmlDeviceGetCurrPcieLinkGeneration", kOptional),
    symbol<&F::pcie_lanes>("nvmlDeviceGetCurrPcieLinkWidth", kOptional),
    symbol<&F::pcie_most_generation>("nvmlDeviceGetMaxPcieLinkGeneration", kOptional),
    symbol<&F::pcie_most_lanes>("nvmlDeviceGetMaxPcieLinkWidth", kOptional),
    symbol<&F::fan>("nvmlDeviceGetFanSpeed", kOptional),
    symbol<&F::encoder>("nvmlDeviceGetEncoderUtilization", kOptional),
    symbol<&F::decoder>("nvmlDeviceGetDecoderUtilization", kOptional),
    symbol<&F::event_set_create>("nvmlEventSetCreate", kOptional),
    symbol<&F::event_set_free>("nvmlEventSetFree", kOptional),
    symbol<&F::event_register>("nvmlDeviceRegisterEvents", kOptional),
    symbol<&F::event_wait>("nvmlEventSetWait_v2", kOptional),
    symbol<&F::lock_clocks>("nvmlDeviceSetGpuLockedClocks", kOptional),
    symbol<&F::reset_clocks>("nvmlDeviceResetGpuLockedClocks", kOptional),
    symbol<&F::lock_memory>("nvmlDeviceSetMemoryLockedClocks", kOptional),
    symbol<&F::reset_memory>("nvmlDeviceResetMemoryLockedClocks", kOptional),
    symbol<&F::set_power_limit>("nvmlDeviceSetPowerManagementLimit", kOptional),
    symbol<&F::power_limit>("nvmlDeviceGetPowerManagementLimit", kOptional),
    symbol<&F::application_clock>("nvmlDeviceGetApplicationsClock", kOptional),
    symbol<&F::mig_mode>("nvmlDeviceGetMigMode", kOptional),
    symbol<&F::mig_device_count>("nvmlDeviceGetMaxMigDeviceCount", kOptional),
    symbol<&F::mig_device>("nvmlDeviceGetMigDeviceHandleByIndex", kOptional),
    symbol<&F::gpu_instance_id>("nvmlDeviceGetGpuInstanceId", kOptional),
    symbol<&F::compute_instance_id>("nvmlDeviceGetComputeInstanceId", kOptional),
    symbol<&F::attributes>("nvmlDeviceGetAttributes_v2", kOptional),
    symbol<&F::instance_profile>("nvmlDeviceGetGpuInstanceProfileInfoV", kOptional),
    symbol<&F::instances>("nvmlDeviceGetGpuInstances", kOptional),
    symbol<&F::instance_info>("nvmlGpuInstanceGetInfo", kOptional),
    symbol<&F::gpm_support>("nvmlGpmQueryDeviceSupport", kOptional),
    symbol<&F::gpm_alloc>("nvmlGpmSampleAlloc", kOptional),
    symbol<&F::gpm_free>("nvmlGpmSampleFree", kOptional),
    symbol<&F::gpm_sample>("nvmlGpmSampleGet", kOptional),
    symbol<&F::gpm_mig_sample>("nvmlGpmMigSampleGet", kOptional),
    symbol<&F::gpm_metrics>("nvmlGpmMetricsGet", kOptional),
};
// A member without a row would stay null for ever.
static_assert(sizeof(NvmlFunctions) == std::size(kSymbols) * sizeof(void*));

Errc errc_of(Return code) {
  switch (code) {
    case Return::not_supported:
    case Return::function_not_found:
    case Return::argument_version_mismatch:
    case Return::deprecated:
      return Errc::not_supported;
    case Return::no_permission:
    case Return::operating_system:
      return Errc::no_permission;
    case Return::not_found:
    case Return::gpu_not_found:
      return Errc::not_found;
    case Return::driver_not_loaded:
    case Return::lib_rm_version_mismatch:
      return Errc::driver_not_loaded;
    case Return::library_not_found:
      return Errc::library_missing;
    case Return::gpu_is_lost:
    case Return::reset_required:
      return Errc::gpu_lost;
    // An argument that NVML refuses is ours, not the user's.
    case Return::success:
    case Return::invalid_argument:
    case Return::uninitialized:
    case Return::insufficient_size:
    case Return::timeout:
    case Return::unknown:
      break;
  }
  return Errc::query_failed;
}

Error init_error(const NvmlFunctions& functions, Return code) {
  if (code == Return::driver_not_loaded)
    return {Errc::driver_not_loaded,
            "the NVIDIA driver is not loaded: load it with 'modprobe nvidia', or check that it is "
            "installed for this kernel"};
  if (code == Return::lib_rm_version_mismatch)
    return {
        Errc::driver_not_loaded,
        "the loaded NVIDIA driver is of another version than libnvidia-ml: reload the driver or "
        "restart the machine"};
  return nvml_error(functions, code, "nvmlInit_v2");
}

}  // namespace

std::span<const NvmlSymbol> nvml_symbols() { return kSymbols; }

Result<NvmlFunctions> resolve_nvml(const std::function<void*(const char*)>& lookup) {
  NvmlFunctions functions;
  for (const NvmlSymbol& symbol : kSymbols) {
    void* found = lookup(symbol.name);
    if (found == nullptr && symbol.older_name != nullptr) found = lookup(symbol.older_name);
    if (found == nullptr && symbol.required)
      return Error{Errc::function_missing, "the NVML library lacks the function " +
                                               std::string(symbol.name) +
                                               ": it is too old, or not NVIDIA's"};
    symbol.store(functions, found);
  }
  return functions;
}

Error nvml_error(const NvmlFunctions& functions, Return code, const char* call) {
  const char* words = functions.error_string != nullptr ? functions.error_string(code) : nullptr;
  std::string message = call;
  message += words != nullptr ? ": " + std::string(words) : " failed";
  message += " (NVML error " + std::to_string(static_cast<unsigned int>(code)) + ")";
  return {errc_of(code), std::move(message)};
}

Result<std::shared_ptr<const NvmlLibrary>> NvmlLibrary::load(std::string_view path) {
  std::string name(path);
  // The secure form: a program that runs with more rights than its user takes no library from them.
  if (const char* named = ::secure_getenv("DERATE_NVML_LIBRARY"); name.empty() && named != nullptr)
    name = named;
  if (name.empty()) name = kDefaultLibrary;

  Handle handle(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL), ::dlclose);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Error{Errc::library_missing, "cannot load " + name +
                                            ", which comes with the NVIDIA driver: " +
                                            (why != nullptr ? why : "unknown reason")};
  }
  const auto lookup = [&](const char* symbol) { return ::dlsym(handle.get(), symbol); };
  auto functions = resolve_nvml(lookup);
  if (!functions.ok()) return std::move(functions).error().with(name);
  return start(std::move(handle), *functions);
}

Result<std::shared_ptr<const NvmlLibrary>> NvmlLibrary::create(const NvmlFunctions& functions) {
  for (const NvmlSymbol& symbol : kSymbols) CHECK(!symbol.required || symbol.present(functions));
  return start(Handle(nullptr, ::dlclose), functions);
}

Result<std::shared_ptr<const NvmlLibrary>> NvmlLibrary::start(Handle handle,
                                                              const NvmlFunctions& functions) {
  const Return code = functions.init();
  if (code != Return::success) return init_error(functions, code);
  return std::shared_ptr<const NvmlLibrary>(new NvmlLibrary(std::move(handle), functions));
}

NvmlLibrary::~NvmlLibrary() { functions_.shutdown(); }

std::optional<std::string> NvmlLibrary::driver_version() const {
  char text[nvml::kDriverVersionSize] = {};
  if (functions_.driver_version == nullptr) return std::nullopt;
  if (functions_.driver_version(text, sizeof text) != Return::success) return std::nullopt;
  text[sizeof text - 1] = '\0';
  return text;
}

Error NvmlLibrary::error(Return code, const char* call) const {
  return nvml_error(functions_, code, call);
}

}  // namespace derate

#ifdef __has_feature
#if __has_feature(address_sanitizer)
// The C library keeps the text of a failed dlopen() until its thread has ended; the thread that
// opens GPUs may end together with the program, which LeakSanitizer takes for a leak.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:_dlerror_run"; }
#endif
#endif
