#include "energy_view.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/printing.h"
#include "service/answers/energy_service.h"
#include "simulated.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

std::string window_joules_text(const std::optional<Joules>& energy) {
  return energy ? fmt::format("{:.1f} J", energy->value()) : "-";
}

std::optional<Joules> sum_of(const WindowSum& window) {
  std::optional<Joules> sum = Joules(0);
  for (const auto& [gpu, energy] : window.energy)
    sum = sum && energy ? std::optional(*sum + *energy) : std::nullopt;
  return sum;
}

// What the power readings say of it.
std::string check_text(const GpuEnergy& gpu) {
  if (gpu.source == EnergySource::none) return "no reading of power or energy";
  if (gpu.counter_still > Duration::zero())
    return "THE COUNTER STOOD STILL: power readings are used instead";
  if (gpu.source == EnergySource::integrated) return "by power readings alone";
  if (!gpu.check_ratio)
    return fmt::format("{} by power readings; too short to compare",
                       window_joules_text(gpu.integrated));
  return fmt::format("power readings {}{}", signed_percent_text(*gpu.check_ratio - 1),
                     *gpu.agrees() ? "" : ": THEY DISAGREE");
}

std::string total_text(const EnergyAccount& account) {
  Table table({"GPU", "energy", "mean power", "<source", "<check"});
  std::string notes;
  for (const GpuEnergy& gpu : account.total.gpus) {
    const auto power = gpu.mean_power(account.total.time);
    const int index = account.gpus[gpu.gpu].index;
    table.add({gpu_cell(index, account.gpus[gpu.gpu].uuid), window_joules_text(gpu.energy),
               power ? fmt::format("{:.1f} W", power->value()) : "-", to_string(gpu.source),
               check_text(gpu)});
    if (gpu.uncovered > Duration::zero())
      notes += fmt::format("GPU {}: {} without a reading are not in its joules\n", index,
                           duration_text(gpu.uncovered));
    if (gpu.counter_still > Duration::zero())
      notes += fmt::format("GPU {}: its counter stood still for {}; power stands in there\n", index,
                           duration_text(gpu.counter_still));
    if (gpu.counter_resets > 0)
      notes += fmt::format("GPU {}: its counter began anew {} times; power stands in there\n",
                           index, gpu.counter_resets);
  }
  return table.text() + notes;
}

std::string windows_text(const WindowSums& windows) {
  if (windows.by_name().empty()) return "";
  Table table({"window", "count", "time", "energy", "energy each"});
  for (const auto& [name, window] : windows.by_name()) {
    const auto sum = sum_of(window);
    const auto each =
        sum ? std::optional(*sum / static_cast<double>(window.count)) : std::optional<Joules>();
    table.add({name, fmt::format("{}", window.count), duration_text(window.time),
               window_joules_text(sum), window_joules_text(each)});
  }
  std::string out = "\n" + table.text();
  if (windows.left_out() > 0)
    out += fmt::format("{} windows of other names are not listed: over {} names\n",
                       windows.left_out(), WindowSums::kMostNames);
  return out;
}

Json sums_json(const EnergyAccount& account) {
  Json out = Json::array();
  for (const auto& [name, window] : account.windows.by_name()) {
    Json gpus = Json::array();
    for (const auto& [gpu, energy] : window.energy)
      gpus.push_back({{"index", account.gpus[gpu].index},
                      {"uuid", account.gpus[gpu].uuid},
                      {"energy_joules", or_null(energy)}});
    const auto sum = sum_of(window);
    out.push_back({{"name", name},
                   {"count", window.count},
                   {"time_seconds", seconds(window.time)},
                   {"energy_joules", or_null(sum)},
                   {"gpus", std::move(gpus)}});
  }
  return out;
}

}  // namespace

void WindowSums::add(const WindowEnergy& window) {
  auto at = by_name_.find(window.name);
  if (at == by_name_.end()) {
    if (by_name_.size() >= kMostNames) {
      ++left_out_;
      return;
    }
    at = by_name_.emplace(window.name, WindowSum{}).first;
  }
  WindowSum& sum = at->second;
  ++sum.count;
  sum.time += window.time;
  for (const GpuEnergy& gpu : window.gpus) {
    auto& energy = sum.energy.try_emplace(gpu.gpu, Joules(0)).first->second;
    energy = energy && gpu.energy ? std::optional(*energy + *gpu.energy) : std::nullopt;
  }
}

std::string energy_text(const EnergyAccount& account) {
  std::string out;
  if (account.exit_code)
    out = fmt::format("\nderate: the command ended with exit code {} after {}\n",
                      *account.exit_code, duration_text(account.total.time));
  else
    out = fmt::format("measured for {}\n", duration_text(account.total.time));
  out += total_text(account) + windows_text(account.windows);
  for (const std::string& trouble : account.troubles) out += trouble + "\n";
  return out;
}

Json energy_json(const EnergyAccount& account) {
  Json total = window_json(account.total, account.gpus);
  Json out = Json::object();
  if (account.exit_code) {
    out["command"] = account.command;
    out["exit_code"] = *account.exit_code;
  }
  mark_simulated(total["gpus"]);
  for (const char* key : {"time_seconds", "energy_joules", "gpus"})
    out[key] = std::move(total[key]);
  out["windows"] = sums_json(account);
  out["windows_left_out"] = account.windows.left_out();
  out["troubles"] = account.troubles;
  return out;
}

std::string energy_log_heading(std::span<const GpuId> gpus) {
  std::string out = "start_time,window_name,elapsed_time";
  for (const GpuId& id : gpus) out += fmt::format(",gpu{}_energy", id.index);
  return out;
}

std::string energy_log_row(const WindowEnergy& window, WallTime begin, std::size_t gpus) {
  std::vector<std::string> cells(gpus);
  for (const GpuEnergy& gpu : window.gpus)
    if (gpu.gpu < gpus && gpu.energy) cells[gpu.gpu] = fmt::format("{:.3f}", gpu.energy->value());
  std::string out = fmt::format("{:.6f},{},{:.6f}", seconds(begin.time_since_epoch()),
                                csv_text(window.name), seconds(window.time));
  for (const std::string& one : cells) out += "," + one;
  return out;
}

}  // namespace derate::cli
