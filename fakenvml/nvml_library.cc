// The library itself, and handles.
#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

constexpr const char* kDriverVersion = "570.0.0";
constexpr const char* kNvmlVersion = "12.570.0";
constexpr int kCudaVersion = 12080;

// By nvmlReturn_t, from 0 on.
constexpr const char* kWords[] = {
    "Success",
    "Uninitialized",
    "Invalid Argument",
    "Not Supported",
    "Insufficient Permissions",
    "Already Initialized",
    "Not Found",
    "Insufficient Size",
    "Insufficient External Power",
    "Driver Not Loaded",
    "Timeout",
    "Interrupt Request Issue",
    "NVML Shared Library Not Found",
    "Function Not Found",
    "Corrupted infoROM",
    "GPU is lost",
    "GPU requires reset",
    "GPU access blocked by the operating system",
    "Driver/library version mismatch",
    "In use by another client",
    "Insufficient Memory",
    "No data",
    "The requested vGPU operation is not available on this GPU with ECC",
    "Insufficient Resources",
    "Frequency Not Supported",
    "Argument version mismatch",
    "Deprecated",
    "Not Ready",
    "GPU Not Found",
};

const char* words_of(unsigned int code) {
  return code < std::size(kWords) ? kWords[code] : "Unknown Error";
}

Return give_number(const char* function, unsigned int* out, unsigned int value) {
  return guarded(function, [&](const Call&) {
    if (out == nullptr) return Return::invalid_argument;
    *out = value;
    return Return::success;
  });
}

// The GPUs that this process sees, by their numbers on the server: those of $DERATE_SIM_VIEW
// ("2,0"), as in a container or a Slurm job, else all.
std::vector<unsigned int> view_of(const State& state) {
  std::vector<unsigned int> out;
  if (const char* const view = ::secure_getenv("DERATE_SIM_VIEW"); view != nullptr) {
    for (const std::string_view item : split(view, ','))
      if (const auto gpu = parse_number<unsigned int>(item); gpu && *gpu < state.gpus)
        out.push_back(*gpu);
    return out;
  }
  for (unsigned int gpu = 0; gpu < state.gpus; ++gpu) out.push_back(gpu);
  return out;
}

Return give_count(const char* function, unsigned int* out) {
  return guarded(function, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    *out = static_cast<unsigned int>(view_of(call.client->state()).size());
    return Return::success;
  });
}

Return give_handle(const char* function, unsigned int index, Device* out) {
  return guarded(function, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    const auto view = view_of(call.client->state());
    if (index >= view.size()) return Return::invalid_argument;
    *out = handle_of(view[index]);
    return enter_gpu(function, call, view[index]);
  });
}

// The GPU whose identity `fits`.
template <class F>
Return find_handle(const char* function, const char* wanted, Device* out, F fits) {
  return guarded(function, [&](const Call& call) {
    if (wanted == nullptr || out == nullptr) return Return::invalid_argument;
    const State& state = call.client->state();
    for (unsigned int i = 0; i < state.gpus; ++i)
      if (fits(state.identity[i])) {
        *out = handle_of(i);
        return Return::success;
      }
    return Return::not_found;
  });
}

// The domain may have fewer zeros in front than ours, or be left out.
bool same_pci_id(std::string_view ours, std::string_view wanted) {
  if (wanted.empty() || wanted.size() > ours.size()) return false;
  const auto upper = [](char c) { return std::toupper(static_cast<unsigned char>(c)); };
  const std::size_t rest = ours.size() - wanted.size();
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (upper(ours[rest + i]) != upper(wanted[i])) return false;
  return ours.substr(0, rest).find_first_not_of("0:") == std::string_view::npos;
}

Return find_pci(const char* function, const char* id, Device* out) {
  return find_handle(function, id, out, [&](const GpuIdentity& identity) {
    return same_pci_id(get_text(identity.pci_bus_id), id);
  });
}

std::string command_of(unsigned int pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/comm";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[64];
  const ssize_t got = file.valid() ? ::read(file.get(), text, sizeof text) : 0;
  return {text, got > 0 ? static_cast<std::size_t>(got) - 1 : 0};  // without the line's end
}

// As the server has it, else as the kernel has it.
std::string name_of(const State& state, unsigned int pid) {
  for (unsigned int gpu = 0; gpu < state.gpus; ++gpu)
    if (const auto all = state.gpu[gpu].processes.read())
      for (std::size_t i = 0; i < all->count; ++i)
        if (all->list[i].pid == pid && all->list[i].name[0] != '\0')
          return get_text(all->list[i].name);
  return command_of(pid);
}

}  // namespace

Return nvmlInit() { return open_session(__func__); }
Return nvmlInit_v2() { return open_session(__func__); }
Return nvmlInitWithFlags(uint) { return open_session(__func__); }
Return nvmlShutdown() { return close_session(__func__); }
const char* nvmlErrorString(Return code) { return words_of(static_cast<unsigned int>(code)); }

Return nvmlSystemGetDriverVersion(char* out, uint size) {
  return guarded(__func__, [&](const Call&) { return give_text(kDriverVersion, out, size); });
}
Return nvmlSystemGetNVMLVersion(char* out, uint size) {
  return guarded(__func__, [&](const Call&) { return give_text(kNvmlVersion, out, size); });
}
Return nvmlSystemGetCudaDriverVersion(int* out) {
  if (out == nullptr) return Return::invalid_argument;
  *out = kCudaVersion;
  return Return::success;
}
Return nvmlSystemGetCudaDriverVersion_v2(int* out) { return nvmlSystemGetCudaDriverVersion(out); }

Return nvmlSystemGetProcessName(uint pid, char* out, uint size) {
  return guarded(__func__, [&](const Call& call) {
    if (out == nullptr || size == 0) return Return::invalid_argument;
    const std::string name = name_of(call.client->state(), pid);
    if (name.empty()) return Return::not_found;
    return give_text(std::string_view(name).substr(0, size - 1), out, size);  // NVML cuts it
  });
}

Return nvmlSystemGetHicVersion(uint* count, nvml::HwbcEntry*) {
  return give_number(__func__, count, 0);
}
Return nvmlUnitGetCount(uint* count) { return give_number(__func__, count, 0); }
Return nvmlGetExcludedDeviceCount(uint* count) { return give_number(__func__, count, 0); }
Return nvmlGetExcludedDeviceInfoByIndex(uint, nvml::ExcludedDevice*) {
  return guarded(__func__, [](const Call&) { return Return::invalid_argument; });
}

Return nvmlDeviceGetCount(uint* count) { return give_count(__func__, count); }
Return nvmlDeviceGetCount_v2(uint* count) { return give_count(__func__, count); }
Return nvmlDeviceGetHandleByIndex(uint index, Device* out) {
  return give_handle(__func__, index, out);
}
Return nvmlDeviceGetHandleByIndex_v2(uint index, Device* out) {
  return give_handle(__func__, index, out);
}
Return nvmlDeviceGetHandleByUUID(const char* uuid, Device* out) {
  return find_handle(__func__, uuid, out,
                     [&](const GpuIdentity& identity) { return get_text(identity.uuid) == uuid; });
}
Return nvmlDeviceGetHandleBySerial(const char* serial, Device* out) {
  return find_handle(__func__, serial, out, [&](const GpuIdentity& identity) {
    return get_text(identity.serial) == serial;
  });
}
Return nvmlDeviceGetHandleByPciBusId(const char* id, Device* out) {
  return find_pci(__func__, id, out);
}
Return nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device* out) {
  return find_pci(__func__, id, out);
}

Return nvmlDerateSimQuery(const char* uuid, SimTruth* out) try {
  Call call;
  if (const Return code = enter_unfaulted(call); code != Return::success) return code;
  if (uuid == nullptr || out == nullptr) return Return::invalid_argument;
  if (out->size != sizeof *out) return Return::argument_version_mismatch;
  const State& state = call.client->state();
  for (call.gpu = 0; call.gpu < state.gpus; ++call.gpu) {
    if (get_text(call.identity().uuid) != uuid) continue;
    const auto now = call.state().now.read();
    if (!now) return Return::gpu_is_lost;
    *out = {sizeof *out,
            now->locked_lowest_mhz,
            now->locked_highest_mhz,
            now->memory_locked_lowest_mhz,
            now->memory_locked_highest_mhz,
            now->application_sm_mhz,
            now->application_memory_mhz,
            now->power_limit_mw,
            now->modes.persistence,
            now->sm_clock_mhz,
            now->writes,
            now->work_seconds,
            now->joules};
    return Return::success;
  }
  return Return::not_found;
} catch (...) {
  return Return::unknown;
}

}  // namespace derate::fakenvml
