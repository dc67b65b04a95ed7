// NVML functions for the processes on a GPU, and their utilisation. Simulated jobs compute; a test
// can have processes that draw.
#include <algorithm>
#include <utility>

#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

void fill(nvml::ProcessInfoV1& out, const ProcessNow& process) {
  out.pid = process.pid;
  out.used_memory = process.memory_bytes;
}
void fill(nvml::ProcessInfo& out, const ProcessNow& process) {
  out = {process.pid, process.memory_bytes, process.gpu_instance, process.compute_instance};
}

// Of a MIG device: the rows of its instances, which a driver need not name again.
bool belongs(const ProcessNow& process, const std::optional<MigDeviceNow>& mig) {
  return !mig || (process.gpu_instance == mig->gpu_instance &&
                  process.compute_instance == mig->compute_instance);
}

template <class Info>
Return give_processes(const char* function, Device device, uint* count, Info* out,
                      bool draws = false) {
  return on_any(function, device, [&](const Call& call) {
    if (count == nullptr) return Return::invalid_argument;
    const auto mig = call.mig_device();
    if (call.slot && !mig) return Return::invalid_argument;
    if (call.slot && draws) return Return::not_supported;
    auto processes = call.state().processes.read();
    if (!processes) return Return::gpu_is_lost;
    ProcessNow* const begin = processes->list;
    ProcessNow* const end = std::remove_if(
        begin, begin + processes->count,
        [&](const ProcessNow& one) { return (one.draws != 0) != draws || !belongs(one, mig); });
    const uint room = *count;
    *count = static_cast<uint>(end - begin);
    if (*count > room) return Return::insufficient_size;
    if (*count > 0 && out == nullptr) return Return::invalid_argument;
    for (uint i = 0; i < *count; ++i) fill(out[i], begin[i]);
    return Return::success;
  });
}

Return give_none(const char* function, Device device, uint* count) {
  return on_gpu(function, device, [&](const Call&) {
    if (count == nullptr) return Return::invalid_argument;
    *count = 0;
    return Return::success;
  });
}

}  // namespace

// Defines the three versions of a list of processes; `given` is what each returns.
#define LISTS(name, given)                                                                \
  Return name(Device device, uint* count, [[maybe_unused]] nvml::ProcessInfoV1* out) {    \
    return given;                                                                         \
  }                                                                                       \
  Return name##_v2(Device device, uint* count, [[maybe_unused]] nvml::ProcessInfo* out) { \
    return given;                                                                         \
  }                                                                                       \
  Return name##_v3(Device device, uint* count, [[maybe_unused]] nvml::ProcessInfo* out) { \
    return given;                                                                         \
  }

LISTS(nvmlDeviceGetComputeRunningProcesses, give_processes(__func__, device, count, out))
LISTS(nvmlDeviceGetGraphicsRunningProcesses, give_processes(__func__, device, count, out, true))
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, give_none(__func__, device, count))

Return nvmlDeviceGetProcessUtilization(Device device, nvml::ProcessUtilization* out, uint* count,
                                       ulonglong last_seen_us) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (count == nullptr) return Return::invalid_argument;
    if (now.mig != 0 || call.identity().driver.old_process_utilisation == 0)
      return Return::not_supported;
    const auto processes = call.state().processes.read();
    if (!processes) return Return::gpu_is_lost;
    const auto newer = [&](const ProcessSample& one) { return one.time_us > last_seen_us; };
    const ProcessSample* const end = processes->samples + processes->sample_count;
    const uint room = *count;
    *count = static_cast<uint>(std::count_if(processes->samples, end, newer));
    if (*count == 0) return Return::not_found;
    if (out == nullptr || room < *count) return Return::insufficient_size;
    for (const ProcessSample* one = processes->samples; one != end; ++one)
      if (newer(*one))
        *out++ = {one->pid, one->time_us, one->sm_percent, one->memory_percent, 0, 0};
    return Return::success;
  });
}

// As on an H200 (580.159.04): another version is refused, and no sample since then is not_found.
Return nvmlDeviceGetProcessesUtilizationInfo(Device device, nvml::ProcessesUtilization* info) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (info == nullptr) return Return::invalid_argument;
    if (info->version != nvml::ProcessesUtilization{}.version)
      return Return::argument_version_mismatch;
    if (now.mig != 0) return Return::not_supported;
    const auto processes = call.state().processes.read();
    if (!processes) return Return::gpu_is_lost;
    const auto newer = [&](const ProcessSample& one) { return one.time_us > info->last_seen_us; };
    const ProcessSample* const end = processes->samples + processes->sample_count;
    const uint room = std::exchange(
        info->count, static_cast<uint>(std::count_if(processes->samples, end, newer)));
    if (info->count == 0) return Return::not_found;
    if (info->list == nullptr || room < info->count) return Return::insufficient_size;
    nvml::ProcessUtilizationInfo* out = info->list;
    for (const ProcessSample* one = processes->samples; one != end; ++one)
      if (newer(*one))
        *out++ = {one->time_us, one->pid, one->sm_percent, one->memory_percent, 0, 0, 0, 0};
    return Return::success;
  });
}

}  // namespace derate::fakenvml
