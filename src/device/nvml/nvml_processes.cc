#include "device/nvml/nvml_processes.h"

#include <algorithm>
#include <cstring>
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
struct Row {
  std::optional<double> bytes;
  bool computes = false;
};
using ProcessTable = std::map<std::pair<unsigned int, unsigned int>, Row>;

constexpr const char* kComputeProcesses = "nvmlDeviceGetComputeRunningProcesses_v2";
constexpr const char* kGraphicsProcesses = "nvmlDeviceGetGraphicsRunningProcesses_v2";
constexpr unsigned int kPidMax = 4'194'304;  // of Linux (proc(5), pid_max)

// A call that lists processes, and the lengths that its rows may have, the likeliest first.
struct ListCall {
  ProcessCall function = nullptr;
  std::size_t row = sizeof(nvml::ProcessInfo), other_row = sizeof(nvml::ProcessInfo);
};

// The functions that came with a driver's _v3 calls show the length of their rows (as nvitop's
// api/libnvml.py does).
ListCall list_call(const NvmlFunctions& nvml, ProcessCall v2, ProcessCall v3) {
  if (v2 != nullptr) return {.function = v2};
  const bool wide = nvml.protected_memory != nullptr && nvml.process_details == nullptr;
  ListCall out{v3, sizeof(nvml::ProcessInfo), nvml::kWideProcessRow};
  if (wide) std::swap(out.row, out.other_row);
  return out;
}
ListCall compute_call(const NvmlFunctions& nvml) {
  return list_call(nvml, nvml.compute_processes, nvml.compute_processes_v3);
}
ListCall graphics_call(const NvmlFunctions& nvml) {
  return list_call(nvml, nvml.graphics_processes, nvml.graphics_processes_v3);
}

// Copies the rows of a list, each `row` bytes after the one before.
ProcessList cut(const ProcessList& raw, std::size_t length, std::size_t row) {
  ProcessList out(length);
  const auto* const bytes = reinterpret_cast<const char*>(raw.data());
  const std::size_t end = raw.size() * sizeof(nvml::ProcessInfo);
  for (std::size_t i = 0; i < length && i * row + sizeof out[i] <= end; ++i)
    std::memcpy(&out[i], bytes + i * row, sizeof out[i]);
  return out;
}

bool can_be(const ProcessList& list) {
  return std::all_of(list.begin(), list.end(), [](const nvml::ProcessInfo& one) {
    return one.pid > 0 && one.pid <= kPidMax;
  });
}

Return read_list(const ListCall& call, nvml::Device device, ProcessList& list) {
  constexpr std::size_t kRoom = 64;
  if (call.function == nullptr) return Return::function_not_found;
  ProcessList raw;
  std::size_t length = 0;
  const Return code =
      read_nvml_rows(raw, length, kRoom, [&](unsigned int* count, nvml::ProcessInfo* infos) {
        return call.function(device, count, infos);
      });
  list = cut(raw, length, call.row);
  if (call.other_row == call.row || can_be(list)) return code;
  if (ProcessList other = cut(raw, length, call.other_row); can_be(other)) list = std::move(other);
  return code;
}

Return read_list(const ListCall& call, std::span<const ProcessPlace> places, ProcessList& list) {
  for (const ProcessPlace& place : places) {
    ProcessList part;
    const Return code = read_list(call, place.device, part);
    if (code != Return::success) return code;
    for (nvml::ProcessInfo& info : part)
      if (place.gpu_instance) info.gpu_instance = *place.gpu_instance;
    list.insert(list.end(), part.begin(), part.end());
  }
  return Return::success;
}

// A process has a row for each compute instance that it is on; one that computes and draws is in
// both lists with the same memory.
void add_list(const ProcessList& list, bool mig, bool computes, ProcessTable& table) {
  std::map<ProcessTable::key_type, std::optional<double>> memory;
  for (const nvml::ProcessInfo& info : list) {
    auto& bytes = memory[{info.pid, mig ? info.gpu_instance : nvml::kNoInstance}];
    if (info.used_memory != nvml::kNotAvailable64)
      bytes = bytes.value_or(0) + static_cast<double>(info.used_memory);
  }
  for (const auto& [key, bytes] : memory) {
    Row& row = table[key];
    row.bytes = std::max(row.bytes, bytes);
    row.computes = row.computes || computes;
  }
}

Result<ProcessTable> read_table(const NvmlLibrary& library, std::span<const ProcessPlace> places,
                                bool mig) {
  const NvmlFunctions& nvml = library.functions();
  ProcessTable table;
  bool supported = false, lists_computing = false;
  const std::pair<ListCall, const char*> lists[] = {{compute_call(nvml), kComputeProcesses},
                                                    {graphics_call(nvml), kGraphicsProcesses}};
  for (const auto& [call, name] : lists) {
    ProcessList list;
    const Return code = read_list(call, places, list);
    if (code != Return::success) {
      Error error = library.error(code, name);
      if (error.code == Errc::not_supported) continue;
      return error;  // half a list would pass for a whole one
    }
    supported = true;
    lists_computing = lists_computing || name == kComputeProcesses;
    // If the driver has only one of the lists, it does not show which processes only draw.
    add_list(list, mig, name == kComputeProcesses || !lists_computing, table);
  }
  if (supported) return table;
  return Error{Errc::not_supported, "this GPU or its driver does not list processes"};
}

std::string process_name(const NvmlFunctions& nvml, unsigned int pid) {
  char name[256] = {};
  if (nvml.process_name != nullptr && nvml.process_name(pid, name, sizeof name) == Return::success)
    return buffer_text(name);
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string line;
  std::getline(file, line);
  std::replace_if(
      line.begin(), line.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return line;
}

std::vector<GpuProcess> rows_of(const NvmlFunctions& nvml, const ProcessTable& table) {
  std::vector<GpuProcess> rows;
  for (const auto& [key, seen] : table) {
    GpuProcess row{.pid = key.first};
    row.name = !rows.empty() && rows.back().pid == row.pid ? rows.back().name
                                                           : process_name(nvml, key.first);
    row.memory_bytes = seen.bytes;
    row.computes = seen.computes;
    if (key.second != nvml::kNoInstance) row.gpu_instance = static_cast<int>(key.second);
    rows.push_back(std::move(row));
  }
  return rows;
}

constexpr std::size_t kSamplesRoom = 128;

using Samples = std::vector<nvml::ProcessUtilization>;

Return read_newer_samples(const NvmlFunctions& nvml, nvml::Device device, unsigned long long since,
                          Samples& out) {
  std::vector<nvml::ProcessUtilizationInfo> list;
  const Return code = read_nvml_list(
      list, kSamplesRoom, [&](unsigned int* count, nvml::ProcessUtilizationInfo* room) {
        nvml::ProcessesUtilization request{.count = *count, .last_seen_us = since, .list = room};
        const Return answer = nvml.processes_utilization(device, &request);
        *count = request.count;
        return answer;
      });
  for (const nvml::ProcessUtilizationInfo& one : list)
    out.push_back({one.pid, one.time_us, one.sm, one.memory, one.encoder, one.decoder});
  return code;
}

// Since that time, by the first of the two calls that this GPU and its driver answer.
Return read_samples(const NvmlFunctions& nvml, nvml::Device device, unsigned long long since,
                    Samples& out) {
  Return code = Return::function_not_found;
  if (nvml.process_utilization != nullptr)
    code =
        read_nvml_list(out, kSamplesRoom, [&](unsigned int* count, nvml::ProcessUtilization* list) {
          return nvml.process_utilization(device, list, count, since);
        });
  const bool answered = code == Return::success || code == Return::not_found ||
                        code == Return::gpu_is_lost || code == Return::no_permission;
  if (answered || nvml.processes_utilization == nullptr) return code;
  out.clear();
  return read_newer_samples(nvml, device, since, out);
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
    same.computes = same.computes || row.computes;
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
  return calls.check(kComputeProcesses, read_list(compute_call(nvml), device, list)) ||
         calls.check(kGraphicsProcesses, read_list(graphics_call(nvml), device, list));
}

std::optional<int> count_computing(NvmlCalls& calls, const NvmlFunctions& nvml,
                                   nvml::Device device) {
  ProcessList list;
  const ListCall call = compute_call(nvml);
  if (call.function == nullptr || calls.lost()) return std::nullopt;
  if (!calls.check(kComputeProcesses, read_list(call, device, list))) return std::nullopt;
  std::set<unsigned int> pids;  // one on several MIG instances has a row for each
  for (const nvml::ProcessInfo& info : list) pids.insert(info.pid);
  return static_cast<int>(pids.size());
}

Utilisations read_utilisations(const NvmlFunctions& nvml, nvml::Device device, WallTime now,
                               UtilisationsSeen& seen) {
  using std::chrono::microseconds;
  constexpr unsigned long long kFreshUs = 1'000'000;  // the longest sample period
  constexpr unsigned long long kAheadUs = 1'000'000;  // most difference between the two clocks
  constexpr unsigned int kPercentMax = 100;           // an entry above it is garbage, its time too
  Utilisations out;
  const auto now_us = std::chrono::floor<microseconds>(now.time_since_epoch()).count();
  const auto end_us = static_cast<unsigned long long>(std::max<std::int64_t>(0, now_us)) + kAheadUs;
  if (seen.time_us > end_us) seen.time_us = 0;
  Samples samples;
  const unsigned long long since = seen.time_us;
  const Return code = read_samples(nvml, device, since, samples);
  // not_found says that no process worked since then.
  out.answered = code == Return::success || code == Return::not_found;
  for (const auto& sample : samples) out.by_pid[sample.pid];  // known only if a sample is sound
  std::erase_if(samples, [&](const nvml::ProcessUtilization& sample) {
    return sample.sm > kPercentMax || sample.memory > kPercentMax || sample.time_us > end_us ||
           sample.time_us < since;
  });
  for (const auto& sample : samples) seen.time_us = std::max(seen.time_us, sample.time_us);
  std::map<unsigned int, unsigned long long> newest;
  for (const auto& sample : samples) {
    // The first reading covers an unknown time: a process that had stopped before is not known.
    const bool before = since == 0 && sample.time_us + kFreshUs < seen.time_us;
    if (before || sample.time_us < newest[sample.pid]) continue;
    newest[sample.pid] = sample.time_us;
    out.by_pid[sample.pid] = Utilisations::Used{percent(sample.sm), percent(sample.memory)};
  }
  return out;
}

bool UsagePace::is_due(std::size_t listed, const UtilisationsSeen& seen, Instant now) {
  constexpr std::chrono::seconds kAlone(10);
  const bool strangers = !seen.unlisted.empty();
  const bool alone = listed == 1 && !strangers;
  const Duration every = alone ? std::max<Duration>(every_, kAlone) : every_;
  const bool wanted = listed > 0 || strangers;
  const bool due = !read_ || (wanted && now - *read_ >= every);
  passed_over_ = passed_over_ || !due;
  return due;
}

void UsagePace::begin(UtilisationsSeen& seen, Instant now, WallTime wall) {
  using std::chrono::microseconds;
  constexpr std::chrono::seconds kWindow(1);
  if (passed_over_) {
    const auto from = std::chrono::floor<microseconds>((wall - kWindow).time_since_epoch()).count();
    seen.time_us = std::max<unsigned long long>(seen.time_us, std::max<std::int64_t>(0, from));
  }
  passed_over_ = false;
  read_ = now;
}

void put_utilisations(const Utilisations& used, UtilisationsSeen& seen,
                      std::vector<GpuProcess>& processes) {
  std::set<unsigned int> unlisted;
  for (const auto& [pid, one] : used.by_pid)
    if (one && one->sm > Fraction(0)) unlisted.insert(static_cast<unsigned int>(pid));
  for (const GpuProcess& process : processes)
    unlisted.erase(static_cast<unsigned int>(process.pid));
  // A process that has ended can have its last sample once.
  const bool foreign = std::any_of(unlisted.begin(), unlisted.end(),
                                   [&](unsigned int pid) { return seen.unlisted.contains(pid); });
  seen.unlisted = std::move(unlisted);
  for (GpuProcess& process : processes) {
    const auto named = used.by_pid.find(process.pid);
    if (named == used.by_pid.end()) {
      if (!foreign) process.sm_utilisation = process.memory_utilisation = Fraction(0);
    } else if (named->second) {
      process.sm_utilisation = named->second->sm;
      process.memory_utilisation = named->second->memory;
    }
  }
}

}  // namespace derate
