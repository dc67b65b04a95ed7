#include "device/nvml/nvml_processes.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace derate {
namespace {

using nvml::Return;
using ProcessCall = decltype(NvmlFunctions::compute_processes);
using ProcessList = std::vector<nvml::ProcessInfo>;
// By pid and MIG instance; kNoInstance without MIG.
using ProcessTable = std::map<std::pair<unsigned int, unsigned int>, std::optional<double>>;

constexpr const char* kComputeProcesses = "nvmlDeviceGetComputeRunningProcesses_v3";
constexpr const char* kGraphicsProcesses = "nvmlDeviceGetGraphicsRunningProcesses_v3";

Return read_list(ProcessCall function, nvml::Device device, ProcessList& list) {
  constexpr std::size_t kRoom = 64;
  if (function == nullptr) return Return::function_not_found;
  return read_nvml_list(list, kRoom, [&](unsigned int* count, nvml::ProcessInfo* infos) {
    return function(device, count, infos);
  });
}

Return read_list(ProcessCall function, std::span<const ProcessPlace> places, ProcessList& list) {
  for (const ProcessPlace& place : places) {
    ProcessList part;
    const Return code = read_list(function, place.device, part);
    if (code != Return::success) return code;
    for (nvml::ProcessInfo& info : part)
      if (place.gpu_instance) info.gpu_instance = *place.gpu_instance;
    list.insert(list.end(), part.begin(), part.end());
  }
  return Return::success;
}

// A process has a row for each compute instance that it is on; one that computes and draws is in
// both lists with the same memory.
void add_list(const ProcessList& list, bool mig, ProcessTable& table) {
  ProcessTable memory;
  for (const nvml::ProcessInfo& info : list) {
    auto& bytes = memory[{info.pid, mig ? info.gpu_instance : nvml::kNoInstance}];
    if (info.used_memory != nvml::kNotAvailable64)
      bytes = bytes.value_or(0) + static_cast<double>(info.used_memory);
  }
  for (const auto& [key, bytes] : memory) table[key] = std::max(table[key], bytes);
}

Result<ProcessTable> read_table(const NvmlLibrary& library, std::span<const ProcessPlace> places,
                                bool mig) {
  const NvmlFunctions& nvml = library.functions();
  ProcessTable table;
  bool supported = false;
  const std::pair<ProcessCall, const char*> lists[] = {
      {nvml.compute_processes, kComputeProcesses}, {nvml.graphics_processes, kGraphicsProcesses}};
  for (const auto& [function, name] : lists) {
    ProcessList list;
    const Return code = read_list(function, places, list);
    if (code != Return::success) {
      Error error = library.error(code, name);
      if (error.code == Errc::not_supported) continue;
      return error;  // half a list would pass for a whole one
    }
    supported = true;
    add_list(list, mig, table);
  }
  if (supported) return table;
  return Error{Errc::not_supported, "this GPU or its driver does not list processes"};
}

std::string process_name(const NvmlFunctions& nvml, unsigned int pid) {
  char name[256] = {};
  if (nvml.process_name != nullptr && nvml.process_name(pid, name, sizeof name) == Return::success)
    return nvml_text(name);
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<GpuProcess> rows_of(const NvmlFunctions& nvml, const ProcessTable& table) {
  std::vector<GpuProcess> rows;
  for (const auto& [key, bytes] : table) {
    GpuProcess row{.pid = key.first};
    row.name = !rows.empty() && rows.back().pid == row.pid ? rows.back().name
                                                           : process_name(nvml, key.first);
    row.memory_bytes = bytes;
    if (key.second != nvml::kNoInstance) row.gpu_instance = static_cast<int>(key.second);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Result<std::vector<GpuProcess>> list_processes(const NvmlLibrary& library, nvml::Device device,
                                               bool mig) {
  const ProcessPlace whole[] = {{device, std::nullopt}};
  const ProcessTable table = TRY(read_table(library, whole, mig));
  std::vector<GpuProcess> processes;
  for (GpuProcess& row : rows_of(library.functions(), table)) {
    if (processes.empty() || processes.back().pid != row.pid) {
      processes.push_back(std::move(row));
      continue;
    }
    GpuProcess& same = processes.back();
    same.gpu_instance.reset();
    if (row.memory_bytes)
      same.memory_bytes = same.memory_bytes.value_or(0) + row.memory_bytes.value();
  }
  return processes;
}

Result<std::vector<GpuProcess>> list_processes_by_instance(const NvmlLibrary& library,
                                                           std::span<const ProcessPlace> places) {
  const ProcessTable table = TRY(read_table(library, places, true));
  return rows_of(library.functions(), table);
}

bool lists_processes(NvmlCalls& calls, const NvmlFunctions& nvml, nvml::Device device) {
  ProcessList list;
  return calls.check(kComputeProcesses, read_list(nvml.compute_processes, device, list)) ||
         calls.check(kGraphicsProcesses, read_list(nvml.graphics_processes, device, list));
}

std::optional<int> count_computing(NvmlCalls& calls, const NvmlFunctions& nvml,
                                   nvml::Device device) {
  ProcessList list;
  if (nvml.compute_processes == nullptr || calls.lost()) return std::nullopt;
  if (!calls.check(kComputeProcesses, read_list(nvml.compute_processes, device, list)))
    return std::nullopt;
  std::set<unsigned int> pids;  // one on several MIG instances has a row for each
  for (const nvml::ProcessInfo& info : list) pids.insert(info.pid);
  return static_cast<int>(pids.size());
}

Utilisations read_utilisations(const NvmlFunctions& nvml, nvml::Device device,
                               unsigned long long& seen_us) {
  constexpr std::size_t kRoom = 128;
  constexpr unsigned long long kFreshUs = 1'000'000;  // the longest sample period
  constexpr unsigned int kPercentMax = 100;           // an entry above it is garbage, its time too
  Utilisations out;
  if (nvml.process_utilization == nullptr) return out;
  std::vector<nvml::ProcessUtilization> samples;
  const unsigned long long since = seen_us;
  const Return code =
      read_nvml_list(samples, kRoom, [&](unsigned int* count, nvml::ProcessUtilization* list) {
        return nvml.process_utilization(device, list, count, since);
      });
  // not_found says that no process worked since then.
  out.answered = code == Return::success || code == Return::not_found;
  for (const auto& sample : samples) out.by_pid[sample.pid];
  std::erase_if(samples, [](const nvml::ProcessUtilization& sample) {
    return sample.sm > kPercentMax || sample.memory > kPercentMax;
  });
  for (const auto& sample : samples) seen_us = std::max(seen_us, sample.time_us);
  std::map<unsigned int, unsigned long long> newest;
  for (const auto& sample : samples) {
    if (sample.time_us + kFreshUs < seen_us || sample.time_us < newest[sample.pid]) continue;
    newest[sample.pid] = sample.time_us;
    out.by_pid[sample.pid] = Utilisations::Used{percent(sample.sm), percent(sample.memory)};
  }
  return out;
}

}  // namespace derate
