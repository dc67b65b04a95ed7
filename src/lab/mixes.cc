#include "lab/mixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/suggest.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr std::array kMixes{
    MixInfo{"training", "steps of 0.30 s compute, 0.08 s memory, 20 ms waiting for data"},
    MixInfo{"prefill-decode", "0.15 s compute, then 1.5 s memory, as a language model answers"},
    MixInfo{"bursty-inference", "2 s compute, then 3 s waiting for requests"},
    MixInfo{"launch-bound", "10 ms compute, then 10 ms waiting for the processor"},
    MixInfo{"drifting", "compute whose power grows by 3 % a minute, back every five minutes"},
    MixInfo{"synchronous",
            "eight GPUs in step: 0.5 s compute, wait for the slowest, then 25 ms exchange"},
};

constexpr int kSynchronousGpus = 8;
constexpr Duration kRound = 500ms, kExchange = 25ms;

// What the end of the flat-voltage region costs it. Far below, memory slows down as well.
double slowdown(const Workload& workload, const SimChip& chip) {
  const auto at =
      std::lower_bound(chip.sm_clocks.begin(), chip.sm_clocks.end(), chip.flat_voltage_end);
  return 1 / workload.performance(static_cast<std::size_t>(at - chip.sm_clocks.begin()));
}

struct Extremes {
  Workload compute, memory;
};

Result<Extremes> extremes(const SimChip& chip) {
  auto all = TRY(built_in_workloads(chip));
  std::erase_if(all, [](const Workload& one) { return !shows_counters(one); });
  if (all.empty())
    return Error{Errc::not_found, fmt::format("{} has no workloads to mix", chip.name)};
  const auto [least, most] = std::minmax_element(
      all.begin(), all.end(),
      [&](const Workload& a, const Workload& b) { return slowdown(a, chip) < slowdown(b, chip); });
  return Extremes{*most, *least};
}

Phase part(const Workload& workload, Duration work, Duration gap = {}) {
  Phase out = workload.phases[0];
  out.work = work;
  out.gap = gap;
  return out;
}

std::vector<Phase> phases_of(const std::string& name, const Extremes& e) {
  if (name == "training") return {part(e.compute, 300ms), part(e.memory, 80ms, 20ms)};
  if (name == "prefill-decode") return {part(e.compute, 150ms), part(e.memory, 1500ms)};
  if (name == "bursty-inference") return {part(e.compute, 2s, 3s)};
  if (name == "launch-bound") return {part(e.compute, 10ms, 10ms)};
  if (name == "synchronous") return {part(e.compute, kRound, kExchange)};
  Phase drifting = part(e.compute, 5min);
  drifting.power_drift_per_minute = 0.03;
  return {drifting};
}

}  // namespace

std::span<const MixInfo> mixes() { return kMixes; }

Result<Workload> make_mix(const std::string& name, const SimChip& chip) {
  std::string known;
  for (const MixInfo& mix : mixes())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", mix.name);
  const bool found = std::any_of(mixes().begin(), mixes().end(),
                                 [&](const MixInfo& mix) { return name == mix.name; });
  if (!found)
    return Error{Errc::not_found,
                 fmt::format("there is no mix '{}'{}", name, choices(name, "; there are ", known))};
  const Extremes parts = TRY(extremes(chip));
  Workload out;
  out.name = name;
  out.chip = chip.name;
  out.source = fmt::format("{} and {}; lengths assumed", parts.compute.name, parts.memory.name);
  out.assumed = true;
  out.phases = phases_of(name, parts);
  if (name == "synchronous") out.gpus = kSynchronousGpus;
  return out;
}

void spread(Workload& workload, int gpus) {
  if (std::exchange(workload.gpus, gpus) > 1 || gpus == 1) return;
  if (workload.phases.back().work <= Duration{}) workload.phases.back().work = kRound;
  workload.phases.back().gap += kExchange;
}

Workload phase_pair(const Workload& a, const Workload& b, Duration period) {
  Workload out = a;
  out.name = a.name + ">" + b.name;
  out.source = "phases of " + a.name + " and " + b.name;
  out.phases = {part(a, period / 2), part(b, period / 2)};
  return out;
}

Workload change_pair(const Workload& a, const Workload& b, Duration work, Duration change) {
  Workload out = a;
  out.name = a.name + "->" + b.name;
  out.source = a.name + " that turns into " + b.name;
  out.phases = {part(a, work / 2), part(b, work / 2)};
  out.change = {.begins = (work - change) / 2, .lasts = change};
  return out;
}

}  // namespace derate
