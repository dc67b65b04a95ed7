#define TOML_EXCEPTIONS 0
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <map>

#include "scenario.h"

namespace derate {
namespace {

// What a key does with its value; false when the value is not of its kind.
using Keys = std::map<std::string_view, std::function<Result<bool>(const toml::node&)>>;

Error bad(std::string_view file, const toml::node& node, std::string_view key, const char* what) {
  return {Errc::bad_data, fmt::format("{}:{}: {}: {}", file, node.source().begin.line, key, what)};
}

// A key that the table below does not name is a typing error, not a comment.
Result<void> read_table(const toml::table& table, std::string_view file, const Keys& keys) {
  for (const auto& [key, node] : table) {
    const auto at = keys.find(key.str());
    if (at == keys.end()) return bad(file, node, key.str(), "no such key");
    if (!TRY(at->second(node))) return bad(file, node, key.str(), "wrong kind of value");
  }
  return {};
}

auto number(double& out) {
  return [&out](const toml::node& node) -> Result<bool> {
    if (!node.is_number()) return false;
    out = *node.value<double>();
    return true;
  };
}

template <class Time>
auto time_in_seconds(Time& out) {
  return [&out](const toml::node& node) -> Result<bool> {
    if (!node.is_number()) return false;
    out = Time(from_seconds(*node.value<double>()));
    return true;
  };
}

template <class T>
auto exactly(T& out) {
  return [&out](const toml::node& node) -> Result<bool> {
    const auto value = node.value_exact<T>();
    if (value) out = *value;
    return value.has_value();
  };
}

// Each element of an array through `each`.
auto list(std::function<Result<bool>(const toml::node&)> each) {
  return [each = std::move(each)](const toml::node& node) -> Result<bool> {
    if (!node.is_array()) return false;
    for (const toml::node& element : *node.as_array())
      if (!TRY(each(element))) return false;
    return true;
  };
}

Result<bool> read_fault(const toml::node& node, std::string_view file, ScenarioGpu& gpu) {
  if (!node.is_table()) return false;
  ScenarioFault fault;
  std::string kind;
  fault.to = Instant::max();
  TRY(read_table(*node.as_table(), file,
                 {{"kind", exactly(kind)},
                  {"from_s", time_in_seconds(fault.from)},
                  {"to_s", time_in_seconds(fault.to)}}));
  if (kind == "gpu_lost") fault.kind = &SimFaults::gpu_lost;
  if (kind == "no_permission") fault.kind = &SimFaults::no_permission;
  if (kind == "writes_ignored") fault.kind = &SimFaults::writes_ignored;
  if (fault.kind == nullptr) return bad(file, node, "kind", "no such fault");
  gpu.faults.push_back(fault);
  return true;
}

Result<bool> read_gpu(const toml::node& node, std::string_view file, Scenario& scenario) {
  if (!node.is_table()) return false;
  ScenarioGpu& gpu = scenario.gpus.emplace_back();
  const auto read_work = [&](const toml::node& entry) -> Result<bool> {
    if (!entry.is_table()) return false;
    ScenarioWork& work = gpu.work.emplace_back();
    TRY(read_table(*entry.as_table(), file,
                   {{"at_s", time_in_seconds(work.at)},
                    {"workload", exactly(work.workload)},
                    {"work_s", time_in_seconds(work.work)}}));
    return true;
  };
  TRY(read_table(*node.as_table(), file,
                 {{"work", list(read_work)}, {"faults", list([&](const toml::node& entry) {
                                                return read_fault(entry, file, gpu);
                                              })}}));
  return true;
}

Result<bool> read_sensors(const toml::node& node, std::string_view file, SimChip& chip) {
  if (!node.is_table()) return false;
  SensorSpec& sensors = chip.sensors;
  TRY(read_table(*node.as_table(), file,
                 {{"utilisation_window_s", time_in_seconds(sensors.utilisation.window)},
                  {"utilisation_refresh_s", time_in_seconds(sensors.utilisation.refresh)},
                  {"utilisation_noise_points", number(sensors.utilisation.noise_points)},
                  {"power_gain", number(sensors.power_gain)},
                  {"loss_probability", number(sensors.loss_probability)},
                  {"late_probability", number(sensors.late_probability)}}));
  return true;
}

}  // namespace

Result<Scenario> load_scenario(const std::string& path) {
  const auto parsed = toml::parse_file(path);
  if (!parsed)
    return Error{Errc::bad_data, fmt::format("{}:{}: {}", path, parsed.error().source().begin.line,
                                             parsed.error().description())};
  const toml::table& table = parsed.table();
  const auto chip_name = table["chip"].value<std::string>();
  if (!chip_name) return bad(path, table, "chip", "missing");
  Scenario out{*TRY(find_sim_chip(*chip_name)), {}, {}, {}, {}, 1, false};
  std::int64_t seed = 1;
  const auto read_param = [&](const toml::node& node) -> Result<bool> {
    const auto text = node.value_exact<std::string>();
    if (text) out.params.push_back(*text);
    return text.has_value();
  };
  const auto read_limit = [&](const toml::node& node) -> Result<bool> {
    if (!node.is_number()) return false;
    out.chip.power_limits.factory = Watts(*node.value<double>());
    return true;
  };
  TRY(read_table(
      table, path,
      {{"chip", [](const toml::node&) -> Result<bool> { return true; }},
       {"policy", exactly(out.policy)},
       {"params", list(read_param)},
       {"duration_s", time_in_seconds(out.duration)},
       {"seed", exactly(seed)},
       {"dry_run", exactly(out.dry_run)},
       {"power_limit_w", read_limit},
       {"sensors", [&](const toml::node& node) { return read_sensors(node, path, out.chip); }},
       {"gpu", list([&](const toml::node& node) { return read_gpu(node, path, out); })}}));
  if (out.gpus.empty() || out.policy.empty() || out.duration <= Duration::zero())
    return bad(path, table, "gpu, policy, duration_s", "missing");
  out.seed = static_cast<std::uint64_t>(seed);
  return out;
}

}  // namespace derate
