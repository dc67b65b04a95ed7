// derate sim list: the catalogue of simulated GPUs and their workloads, with the sources.
#include <fmt/format.h>

#include "base/json.h"
#include "command_options.h"
#include "device/sim/sim_chip.h"
#include "device/sim/sim_workload.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Json efficient_clock(const SimChip& chip) {
  return chip.flat_voltage_end_known ? Json(chip.flat_voltage_end.value()) : Json();
}

Json chip_json(const SimChip& chip, const std::vector<Workload>& workloads) {
  Json list = Json::array(), sources = Json::array();
  const std::size_t low = static_cast<std::size_t>(
      std::lower_bound(chip.sm_clocks.begin(), chip.sm_clocks.end(), chip.flat_voltage_end) -
      chip.sm_clocks.begin());
  for (const Workload& w : workloads)
    list.push_back({{"name", w.name},
                    {"performance_at_efficient_clock_ratio", w.performance(low)},
                    {"power_at_efficient_clock_watts", w.power(low).value()},
                    {"power_at_highest_clock_watts", w.power(chip.sm_clocks.size() - 1).value()},
                    {"assumed", w.assumed},
                    {"source", w.source}});
  for (const Provenance& p : chip.provenance)
    sources.push_back({{"what", p.what}, {"source", p.source}, {"assumed", p.assumed}});
  return {{"chip", chip.name},
          {"product", chip.product},
          {"architecture", to_string(chip.architecture)},
          {"lowest_clock_mhz", chip.sm_clocks.front().value()},
          {"highest_clock_mhz", chip.sm_clocks.back().value()},
          {"clocks", chip.sm_clocks.size()},
          {"efficient_clock_mhz", efficient_clock(chip)},
          {"memory_clock_mhz", chip.memory_clock.value()},
          {"power_limit_watts", chip.power_limits.factory.value()},
          {"power_limit_settable", !chip.power_limit_fixed},
          {"sources", std::move(sources)},
          {"workloads", std::move(list)}};
}

void print_sources(const SimChip& chip) {
  Table sources({"figure", "<source", "<"});
  for (const Provenance& p : chip.provenance)
    sources.add({p.what, p.source, p.assumed ? "assumed" : ""});
  print("{}\n", sources.text());
}

void print_workloads(const SimChip& chip, const std::vector<Workload>& workloads) {
  const std::size_t low = static_cast<std::size_t>(
      std::lower_bound(chip.sm_clocks.begin(), chip.sm_clocks.end(), chip.flat_voltage_end) -
      chip.sm_clocks.begin());
  Table table({"workload", fmt::format("perf@{:.0f}", chip.flat_voltage_end.value()),
               fmt::format("W@{:.0f}", chip.flat_voltage_end.value()),
               fmt::format("W@{:.0f}", chip.sm_clocks.back().value()), "<source", "<"});
  for (const Workload& w : workloads)
    table.add({w.name, fmt::format("{:.3f}", w.performance(low)),
               fmt::format("{:.0f}", w.power(low).value()),
               fmt::format("{:.0f}", w.power(chip.sm_clocks.size() - 1).value()), w.source,
               w.assumed ? "assumed" : ""});
  print("{}\n", table.text());
}

void print_chip(const SimChip& chip, const std::vector<Workload>& workloads) {
  print("{}  {}\n", toned(chip.name, Paint::strong), chip.product);
  const std::string efficient = chip.flat_voltage_end_known
                                    ? fmt::format("{:.0f} MHz", chip.flat_voltage_end.value())
                                    : "not known";
  print(
      "  {} SM clocks from {:.0f} to {:.0f} MHz, efficient clock {}, memory {:.0f} MHz, power "
      "limit "
      "{:.0f} W{}\n\n",
      chip.sm_clocks.size(), chip.sm_clocks.front().value(), chip.sm_clocks.back().value(),
      efficient, chip.memory_clock.value(), chip.power_limits.factory.value(),
      chip.power_limit_fixed ? ", fixed" : "");
  if (!chip.provenance.empty()) print_sources(chip);
  if (workloads.empty())
    print("  no fitted workloads: measured tables bring theirs (derate lab import)\n");
  else
    print_workloads(chip, workloads);
}

// One line each.
void print_catalogue(const std::vector<SimChip>& chips,
                     const std::vector<std::size_t>& workload_counts) {
  Table table({"<chip", "<product", "SM clocks", "<MHz", "memory MHz", "limit W", "workloads"});
  for (std::size_t i = 0; i < chips.size(); ++i) {
    const SimChip& chip = chips[i];
    std::string memory = fmt::format("{:.0f}", chip.memory_clock.value());
    for (const MemoryClock& lower : chip.lower_memory_clocks)
      memory += fmt::format(", {:.0f}", lower.clock.value());
    table.add({chip.name, chip.product, std::to_string(chip.sm_clocks.size()),
               fmt::format("{:.0f}-{:.0f}", chip.sm_clocks.front().value(),
                           chip.sm_clocks.back().value()),
               memory,
               fmt::format("{:.0f}{}", chip.power_limits.factory.value(),
                           chip.power_limit_fixed ? ", fixed" : ""),
               workload_counts[i] == 0 ? "-" : std::to_string(workload_counts[i])});
  }
  print("{}\n", table.text());
  print(
      "`derate sim list CHIP` has each figure's source, and the workloads. A chip without "
      "workloads "
      "answers\nas its driver does; its voltage is not known, so that work needs measured tables "
      "(docs/lab.md).\n");
}

}  // namespace

Result<int> run_verb(const SimListOptions& options) {
  if (options.toml) {
    print("{}", TRY(sim_chip_file(options.chip)));
    return 0;
  }
  std::vector<SimChip> chips;
  if (options.chip.empty())
    chips.assign(sim_chips().begin(), sim_chips().end());
  else
    chips.push_back(TRY(open_sim_chip(options.chip)));
  Json list = Json::array();
  std::vector<std::size_t> counts;
  for (const SimChip& chip : chips) {
    const auto workloads = TRY(built_in_workloads(chip));
    counts.push_back(workloads.size());
    if (options.json)
      list.push_back(chip_json(chip, workloads));
    else if (!options.chip.empty())
      print_chip(chip, workloads);
  }
  if (options.json) return print_json("sim list", {{"chips", std::move(list)}});
  if (options.chip.empty()) print_catalogue(chips, counts);
  return 0;
}

}  // namespace derate::cli
