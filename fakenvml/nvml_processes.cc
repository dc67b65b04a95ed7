// Who works on a GPU. Simulated jobs compute and draw nothing.
#include <algorithm>

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
  const bool in_mig = process.gpu_instance != kNone;
  out = {process.pid, process.memory_bytes, in_mig ? process.gpu_instance : nvml::kNoInstance,
         in_mig ? 0 : nvml::kNoInstance};
}

template <class Info>
Return give_processes(const char* function, Device device, uint* count, Info* out) {
  return on_any(function, device, [&](const Call& call) {
    if (count == nullptr) return Return::invalid_argument;
    auto processes = call.state().processes.read();
    if (!processes) return Return::gpu_is_lost;
    if (call.slot) {
      const auto instance = call.instance();
      if (!instance) return Return::invalid_argument;
      ProcessNow* const end = processes->list + processes->count;
      processes->count = static_cast<std::uint64_t>(
          std::remove_if(processes->list, end,
                         [&](const auto& one) { return one.gpu_instance != instance->id; }) -
          processes->list);
    }
    const uint room = *count;
    *count = static_cast<uint>(processes->count);
    if (*count > room) return Return::insufficient_size;
    if (*count > 0 && out == nullptr) return Return::invalid_argument;
    for (uint i = 0; i < *count; ++i) fill(out[i], processes->list[i]);
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

uint known(uint percent) { return percent == kNone ? 0 : percent; }

}  // namespace

Return nvmlDeviceGetComputeRunningProcesses(Device device, uint* count, nvml::ProcessInfoV1* out) {
  return give_processes(__func__, device, count, out);
}
Return nvmlDeviceGetComputeRunningProcesses_v2(Device device, uint* count, nvml::ProcessInfo* out) {
  return give_processes(__func__, device, count, out);
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, uint* count, nvml::ProcessInfo* out) {
  return give_processes(__func__, device, count, out);
}
Return nvmlDeviceGetGraphicsRunningProcesses(Device device, uint* count, nvml::ProcessInfoV1*) {
  return give_none(__func__, device, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v2(Device device, uint* count, nvml::ProcessInfo*) {
  return give_none(__func__, device, count);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, uint* count, nvml::ProcessInfo*) {
  return give_none(__func__, device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses(Device device, uint* count, nvml::ProcessInfoV1*) {
  return give_none(__func__, device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v2(Device device, uint* count, nvml::ProcessInfo*) {
  return give_none(__func__, device, count);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, uint* count, nvml::ProcessInfo*) {
  return give_none(__func__, device, count);
}

Return nvmlDeviceGetProcessUtilization(Device device, nvml::ProcessUtilization* out, uint* count,
                                       ulonglong last_seen_us) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (count == nullptr) return Return::invalid_argument;
    if (now.mig != 0) return Return::not_supported;
    const auto processes = call.state().processes.read();
    if (!processes) return Return::gpu_is_lost;
    const uint room = *count;
    *count = static_cast<uint>(processes->count);
    if (processes->count == 0 || processes->time_us <= last_seen_us) return Return::not_found;
    if (out == nullptr || room < *count) return Return::insufficient_size;
    for (uint i = 0; i < *count; ++i) {
      const ProcessNow& process = processes->list[i];
      out[i] = {process.pid,
                processes->time_us,
                known(process.sm_percent),
                known(process.memory_percent),
                0,
                0};
    }
    return Return::success;
  });
}

}  // namespace derate::fakenvml
