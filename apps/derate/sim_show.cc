// derate sim show: what is set on served GPUs, and the truth about them.
#include <fmt/format.h>

#include "base/json.h"
#include "fakenvml/sim_client.h"
#include "sim_served.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

using fakenvml::get_text, fakenvml::GpuFault, fakenvml::GpuIdentity, fakenvml::GpuNow,
    fakenvml::kNone;
struct FaultName {
  GpuFault fault;
  const char* name;
};
constexpr FaultName kFaultNames[] = {
    {GpuFault::lost, "lost"},
    {GpuFault::writes_ignored, "writes-ignored"},
    {GpuFault::counters_frozen, "counters frozen"},
    {GpuFault::counters_backwards, "counters backwards"},
    {GpuFault::counters_wrapped, "counters wrapped"},
    {GpuFault::counters_jump, "counters jump"},
    {GpuFault::absurd, "absurd"},
    {GpuFault::mig, "mig"},
};

struct ShownGpu {
  int index = 0;
  GpuIdentity identity{};
  GpuNow now{};
  fakenvml::GpuProcesses processes{};
  std::vector<std::string> faults;
};

std::vector<std::string> faults_of(const fakenvml::State& state, std::uint32_t gpu,
                                   const GpuNow& now) {
  std::vector<std::string> out;
  for (const FaultName& one : kFaultNames)
    if (now.faults >> static_cast<std::uint32_t>(one.fault) & 1) out.emplace_back(one.name);
  const auto calls = state.faults.read();
  if (!calls) return out;
  for (const fakenvml::CallFault& fault : calls->list) {
    if (fault.id == 0 || (fault.gpu != fakenvml::kEveryGpu && fault.gpu != gpu)) continue;
    out.push_back(fault.hangs != 0 ? fmt::format("{} hangs", get_text(fault.call))
                                   : fmt::format("{} fails {}", get_text(fault.call), fault.code));
  }
  return out;
}

Result<ShownGpu> look(const fakenvml::State& state, int index) {
  const auto& gpu = state.gpu[index];
  const auto now = gpu.now.read();
  const auto processes = gpu.processes.read();
  if (!now || !processes) return Error{Errc::gpu_lost, "the server died while it wrote"};
  ShownGpu out;
  out.index = index;
  out.identity = state.identity[index];
  out.now = *now;
  out.processes = *processes;
  out.faults = faults_of(state, static_cast<std::uint32_t>(index), *now);
  return out;
}

void put(Json& json, const char* key, std::uint32_t value) {
  if (value != kNone) json[key] = value;
}

Json to_json(const ShownGpu& gpu) {
  const GpuNow& now = gpu.now;
  Json json = {{"index", gpu.index},
               {"chip", get_text(gpu.identity.chip)},
               {"uuid", get_text(gpu.identity.uuid)}};
  put(json, "locked_lowest_mhz", now.locked_lowest_mhz);
  put(json, "locked_highest_mhz", now.locked_highest_mhz);
  put(json, "memory_locked_lowest_mhz", now.memory_locked_lowest_mhz);
  put(json, "memory_locked_highest_mhz", now.memory_locked_highest_mhz);
  put(json, "application_sm_clock_mhz", now.application_sm_mhz);
  put(json, "application_memory_clock_mhz", now.application_memory_mhz);
  json["power_limit_watts"] = now.power_limit_mw / 1000.0;
  json["persistence"] = now.modes.persistence != 0;
  json["mig"] = now.mig != 0;
  json["writes"] = now.writes;
  json["sm_clock_mhz"] = now.sm_clock_mhz;
  json["work_seconds"] = now.work_seconds;
  json["joules"] = now.joules;
  Json processes = Json::array();
  for (std::size_t i = 0; i < gpu.processes.count; ++i)
    processes.push_back(
        {{"pid", gpu.processes.list[i].pid}, {"name", get_text(gpu.processes.list[i].name)}});
  json["processes"] = std::move(processes);
  json["faults"] = gpu.faults;
  return json;
}

std::string range_text(std::uint32_t lowest, std::uint32_t highest) {
  return lowest == kNone ? "-" : fmt::format("{}-{}", lowest, highest);
}

void print_table(const std::vector<ShownGpu>& gpus) {
  Table table({"GPU", "<chip", "MHz", "locked", "app", "limit W", "writes", "work s", "joules",
               "jobs", "<faults"});
  for (const ShownGpu& gpu : gpus) {
    const GpuNow& now = gpu.now;
    const std::string application =
        now.application_sm_mhz == kNone ? "-" : fmt::format("{}", now.application_sm_mhz);
    table.add({fmt::format("{}", gpu.index), get_text(gpu.identity.chip),
               fmt::format("{}", now.sm_clock_mhz),
               range_text(now.locked_lowest_mhz, now.locked_highest_mhz), application,
               fmt::format("{:.0f}", now.power_limit_mw / 1000.0), fmt::format("{}", now.writes),
               fmt::format("{:.1f}", now.work_seconds), fmt::format("{:.0f}", now.joules),
               fmt::format("{}", gpu.processes.count),
               fmt::format("{}", fmt::join(gpu.faults, ", "))});
  }
  print("{}", table.text());
}

}  // namespace

Result<int> run_verb(const SimShowOptions& options) {
  const auto client = TRY(connect_sim(options));
  std::vector<ShownGpu> gpus;
  for (const int index : TRY(served_gpus(*client, options.gpus)))
    gpus.push_back(TRY(look(client->state(), index)));
  if (!options.json) {
    print_table(gpus);
    return 0;
  }
  Json list = Json::array();
  for (const ShownGpu& gpu : gpus) list.push_back(to_json(gpu));
  return print_json("sim show", {{"server_pid", client->state().pid}, {"gpus", std::move(list)}});
}

}  // namespace derate::cli
