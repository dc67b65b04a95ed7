// derate replay: drives the loop from a recorded trace, as a dry run, in virtual time.
#include "device/replay/replay_device.h"
#include "policy/registry/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "command_options.h"
#include "config/chip_file.h"
#include "device/replay/csv_trace.h"
#include "device/sim/sim_chip.h"
#include "govern/fleet/policy_choice.h"
#include "govern/ledger.h"
#include "govern/records_file.h"
#include "summary.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// What was seen and decided in one labelled stretch of the trace.
struct Stretch {
  std::string label;
  Instant begin{};
  Instant end{};
  Ledger ledger;
  double gpu_sum = 0, memory_sum = 0, dram_sum = 0;
  int gpu_count = 0, memory_count = 0, dram_count = 0;

  void add(const Record& record) {
    ledger.add(record);
    end = record.time;
    if (!record.sample) return;
    const auto count = [](const std::optional<Fraction>& share, double& sum, int& n) {
      if (share) sum += share->value(), ++n;
    };
    count(record.sample->gpu_utilisation, gpu_sum, gpu_count);
    count(record.sample->memory_utilisation, memory_sum, memory_count);
    count(record.sample->activity.dram, dram_sum, dram_count);
  }
  static std::optional<double> mean(double sum, int n) {
    if (n == 0) return std::nullopt;
    return sum / n;
  }
};

std::vector<Capability> catalogue() {
  std::vector<Capability> out;
  for (const SimChip& chip : sim_chips()) out.push_back(sim_capability(chip, 0));
  return out;
}

// A hole in the trace is replayed until the loop has given up on it, then skipped.
Instant after_holes(const Trace& trace, Instant next) {
  constexpr Duration kPatience = std::chrono::minutes(1);
  const auto coming = std::upper_bound(trace.samples.begin(), trace.samples.end(), next,
                                       [](Instant t, const Sample& s) { return t < s.time; });
  if (coming == trace.samples.begin() || coming == trace.samples.end()) return next;
  const bool given_up = next - (coming - 1)->time > kPatience;
  return given_up && coming->time - next > kPatience ? coming->time : next;
}

struct ReplayedTrace {
  std::vector<Stretch> stretches;
  Ledger whole;
};

Result<ReplayedTrace> replay(const Trace& trace, const ChosenPolicy& policy,
                             const Settings& settings, const std::string& records_path) {
  FakeClock clock;
  ReplayDevice device(trace, clock);
  std::vector<GovernedGpu> governed;
  governed.push_back(TRY(govern_gpu(device, nullptr, policy, settings)));
  const Megahertz highest = governed.back().envelope.highest();
  ReplayedTrace out{{}, Ledger(highest)};
  Governor governor(std::move(governed), clock, governor_options(settings));
  std::optional<RecordsFile> records;
  if (!records_path.empty()) records = TRY(RecordsFile::create(records_path, clock.now()));

  const Duration tick = policy_tick(policy.params);
  std::size_t next_label = 0;
  for (Instant next{}; next.time_since_epoch() <= device.duration();
       next = after_holes(trace, next + tick)) {
    clock.sleep_until(next);
    while (next_label < trace.labels.size() && trace.labels[next_label].time <= next)
      out.stretches.push_back({trace.labels[next_label++].text, next, next, Ledger(highest)});
    for (const Record& record : governor.tick()) {
      out.whole.add(record);
      if (!out.stretches.empty()) out.stretches.back().add(record);
      if (records) TRY(records->add(record));
    }
  }
  return out;
}

std::string whole_percent_text(std::optional<double> share) {
  return share ? fmt::format("{:.0f} %", *share * 100) : "-";
}

std::string clock_text(const std::optional<Megahertz>& clock) {
  return clock ? fmt::format("{:.0f}", clock->value()) : "-";
}

// The time-weighted mean of the clocks asked for; the GPU's own control counts as the highest.
std::optional<Megahertz> mean_asked(const GpuFigures& figures, Megahertz highest) {
  if (!figures.clock_ratio) return std::nullopt;
  return highest * figures.clock_ratio->value();
}

Table stretch_table(const ReplayedTrace& replayed, Megahertz highest) {
  Table table({"phase", "time", "power", "SM clock", "GPU util", "mem util", "DRAM activity",
               "would lock", "model says"});
  for (const Stretch& s : replayed.stretches) {
    const auto power = s.ledger.energy().mean_reading();
    const GpuFigures figures = s.ledger.figures();
    const auto expected = figures.expected_performance;
    table.add({s.label, duration_text(s.end - s.begin),
               power ? fmt::format("{:.0f} W", power->value()) : "-",
               clock_text(figures.mean_clock),
               whole_percent_text(Stretch::mean(s.gpu_sum, s.gpu_count)),
               whole_percent_text(Stretch::mean(s.memory_sum, s.memory_count)),
               whole_percent_text(Stretch::mean(s.dram_sum, s.dram_count)),
               clock_text(mean_asked(figures, highest)),
               expected ? percent_text(expected->value(), 0) : "-"});
  }
  return table;
}

Json stretch_json(const Stretch& s, Megahertz highest) {
  const GpuFigures figures = s.ledger.figures();
  const auto number = [](std::optional<double> v) { return v ? Json(*v) : Json(nullptr); };
  const auto value = [](const auto& v) { return v ? Json(v->value()) : Json(nullptr); };
  return {{"phase", s.label},
          {"begin_seconds", seconds(s.begin.time_since_epoch())},
          {"time_seconds", seconds(s.end - s.begin)},
          {"mean_power_watts", value(s.ledger.energy().mean_reading())},
          {"mean_sm_clock_mhz", value(figures.mean_clock)},
          {"gpu_utilisation_ratio", number(Stretch::mean(s.gpu_sum, s.gpu_count))},
          {"memory_utilisation_ratio", number(Stretch::mean(s.memory_sum, s.memory_count))},
          {"dram_activity_ratio", number(Stretch::mean(s.dram_sum, s.dram_count))},
          {"mean_asked_clock_mhz", value(mean_asked(figures, highest))},
          {"expected_performance_ratio", value(figures.expected_performance)}};
}

}  // namespace

Result<int> run_verb(const ReplayOptions& options) {
  const Settings settings = TRY(load_settings(options.policy.config));
  const ChosenPolicy policy = TRY(choose_policy(options.policy, settings));
  auto chips = catalogue();
  std::string chip = options.chip;
  if (is_chip_path(chip)) {
    chips.push_back(sim_capability(TRY(open_sim_chip(chip)), 0));
    chip = chips.back().id.name;
  }
  const Trace trace = TRY(load_trace(options.trace, {chip, chips}));
  const ReplayedTrace replayed = TRY(replay(trace, policy, settings, options.records));
  const Megahertz highest = trace.capability.sm_clocks.back();
  GpuSummary summary;
  summary.capability = trace.capability;
  summary.policy = policy.info->name;
  summary.promise = promised_performance(policy);
  summary.dry_run = true;
  if (options.json) {
    Json phases = Json::array();
    for (const Stretch& stretch : replayed.stretches)
      phases.push_back(stretch_json(stretch, highest));
    return print_json("replay", {{"trace", options.trace},
                                 {"samples", trace.samples.size()},
                                 {"notes", trace.notes},
                                 {"gpu", summary_json(summary, replayed.whole.figures())},
                                 {"phases", std::move(phases)}});
  }
  for (const std::string& note : trace.notes) print("note: {}\n", note);
  if (!replayed.stretches.empty()) print("{}\n", stretch_table(replayed, highest).text());
  print("{}: {} samples, replayed as a dry run\n{}", options.trace, trace.samples.size(),
        summary_text(summary, replayed.whole.figures()));
  print(
      "The recorded GPU did not follow these decisions: what a policy learns from changing its "
      "clock, it cannot learn here.\n");
  return 0;
}

}  // namespace derate::cli
