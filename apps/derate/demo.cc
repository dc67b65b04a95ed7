// derate demo: what the policies do on simulated GPUs, as one table a chip.
#include <fmt/format.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "command_options.h"
#include "lab/compare.h"
#include "policy/registry/registry.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// The chips whose workloads were measured on them; the catalogue has more, by analogy.
constexpr const char* kMeasuredChips[] = {"V100-SXM2", "A100-SXM4", "H200"};

// One comparison and how it is announced.
struct Part {
  std::string title;
  CompareSpec spec;
  bool wide = false;  // the table of the measured applications shows the efficiency gain first
};

Result<std::vector<PolicyChoice>> demo_policies(const SimChip& chip, double delta,
                                                const std::vector<const char*>& names) {
  std::vector<PolicyChoice> out;
  for (const char* name : names) {
    const PolicyInfo* info = TRY(find_policy(name));
    PolicyChoice choice{info, default_params(info->params), name};
    if (choice.params.number("delta")) choice.params.set("delta", {delta});
    if (std::string_view(name) == "efficient-fix")
      choice.label = fmt::format("{} {:.0f} MHz", name, chip.flat_voltage_end.value());
    out.push_back(std::move(choice));
  }
  return out;
}

Result<Part> built_in_part(const SimChip& chip, const DemoOptions& options) {
  Part part;
  part.spec.chip = &chip;
  part.spec.workloads = TRY(built_in_workloads(chip));
  part.spec.policies = TRY(demo_policies(
      chip, options.delta,
      {"max-freq", "efficient-fix", "gpu-activity", "energy-ucb", "geepafs", "assure"}));
  part.spec.seeds = options.seeds > 0 ? options.seeds : 1;
  part.spec.delta = options.delta;
  part.spec.work = from_seconds(options.job_seconds);
  part.title = fmt::format("{}: {} workloads fitted to measurements, the chip's own sensors",
                           chip.name, part.spec.workloads.size());
  return part;
}

// A chip without GPM, with the activity that a DCGM host engine adds to its utilisation.
Result<Part> dcgm_part(const SimChip& chip, const DemoOptions& options) {
  Part part = TRY(built_in_part(chip, options));
  part.spec.policies =
      TRY(demo_policies(chip, options.delta, {"max-freq", "gpu-activity", "assure"}));
  part.title = fmt::format(
      "{}: the same with activity from a DCGM host engine (lag, noise assumed)", chip.name);
  return part;
}

// The published code's replay: ideal sensors, jobs that arrive anywhere in the 15 s probe cycle.
Result<Part> tabled_part(const SimChip& reference_chip, const DemoOptions& options) {
  Part part;
  part.wide = true;
  part.spec.chip = &reference_chip;
  part.spec.workloads = TRY(load_workload_tables(options.data + "/v100", reference_chip));
  part.spec.policies = TRY(demo_policies(reference_chip, options.delta,
                                         {"max-freq", "nv-boost", "efficient-fix", "utiliz-scale",
                                          "gpu-activity", "energy-ucb", "geepafs", "assure"}));
  part.spec.seeds = options.seeds > 0 ? options.seeds : 10;
  part.spec.arrival_spread = std::chrono::seconds(15);
  part.spec.delta = options.delta;
  part.spec.work = from_seconds(options.job_seconds);
  part.title = fmt::format("{}: {} measured applications, reference sensors, {} seeds",
                           reference_chip.name, part.spec.workloads.size(), part.spec.seeds);
  return part;
}

std::string promise_text(const PolicyFigures& figures, std::size_t apps) {
  if (figures.apps_over > 0) return fmt::format("broken: {} of {}", figures.apps_over, apps);
  if (figures.broken_jobs > 0)
    return fmt::format("broken: {} of {} jobs", figures.broken_jobs, figures.jobs);
  return "kept";
}

void add_policy(Table& table, const PolicyFigures& figures, std::size_t apps) {
  const bool kept = figures.apps_over == 0 && figures.broken_jobs == 0;
  table.add(
      {figures.label, fmt::format("{:.2f} kJ", figures.mean_energy.value() / 1000),
       percent_text(figures.mean_energy_saving),
       fmt::format("{:.0f} W", figures.mean_power.value()), percent_text(1 - figures.mean_loss),
       signed_percent_text(figures.mean_gain), percent_text(figures.mean_loss),
       worst_text(figures.worst_loss, figures.worst_app), promise_text(figures, apps)},
      kept ? Paint::plain : Paint::bad);
}

void add_hindsight(Table& table, const std::string& label, const HindsightResult& result,
                   const std::string& remark) {
  table.add({label, "-", percent_text(result.mean_saving), "-", percent_text(1 - result.mean.loss),
             signed_percent_text(result.mean.gain), percent_text(result.mean.loss),
             worst_text(result.worst_loss, result.worst_app), remark},
            Paint::dim);
}

// The constant clock whose mean loss is nearest to the policy's: a policy that it equals has done
// nothing.
const FixedForAll& fixed_clock_near(const Comparison& comparison, double loss) {
  const FixedForAll* best = &comparison.frontier.front();
  for (const auto& fixed : comparison.frontier)
    if (std::abs(fixed.result.mean.loss - loss) < std::abs(best->result.mean.loss - loss))
      best = &fixed;
  return *best;
}

void print_part(const Part& part, const Comparison& comparison, bool apps) {
  Table table({"policy", "energy/job", "saved", "power", "performance", "efficiency", "mean loss",
               "<worst loss", "<promise"});
  for (const PolicyFigures& figures : comparison.policies)
    add_policy(table, figures, part.spec.workloads.size());
  const PolicyFigures& last = comparison.policies.back();
  const auto& fixed = fixed_clock_near(comparison, last.mean_loss);
  add_hindsight(table, fmt::format("fixed {:.0f} MHz", fixed.clock.value()), fixed.result,
                fmt::format("(at {}'s mean loss)", last.label));
  add_hindsight(table, "oracle", comparison.oracle, "(in hindsight)");
  print("{}\n", toned(part.title, Paint::strong));
  print("{:.0f} s jobs after {:.0f} s idle, promise: performance >= {}\n", seconds(part.spec.work),
        seconds(part.spec.idle_before), percent_text(1 - part.spec.delta, 0));
  print("{}", table.text());
  if (apps) {
    Table each({"application", "<policy", "loss", "worst job", "efficiency", "mean power", "time"});
    for (const PolicyFigures& policy : comparison.policies)
      for (const AppFigures& app : policy.apps)
        each.add({app.app, policy.label, percent_text(app.loss), percent_text(app.worst_job_loss),
                  signed_percent_text(app.efficiency_gain),
                  fmt::format("{:.0f} W", app.mean_power.value()), duration_text(app.time)},
                 app.loss > part.spec.delta ? Paint::bad : Paint::plain);
    print("\n{}", each.text());
  }
  print("\n");
}

Json hindsight_json(const HindsightResult& result) {
  return {{"energy_saving_ratio", result.mean_saving},
          {"efficiency_gain_ratio", result.mean.gain},
          {"mean_loss_ratio", result.mean.loss},
          {"worst_loss_ratio", result.worst_loss},
          {"worst_app", result.worst_app}};
}

Json policy_json(const PolicyFigures& figures) {
  Json apps = Json::array();
  for (const AppFigures& app : figures.apps)
    apps.push_back({{"app", app.app},
                    {"loss_ratio", app.loss},
                    {"slowdown_ratio", 1 / (1 - app.loss) - 1},
                    {"worst_job_loss_ratio", app.worst_job_loss},
                    {"efficiency_gain_ratio", app.efficiency_gain},
                    {"energy_joules", app.energy.value()},
                    {"mean_power_watts", app.mean_power.value()},
                    {"time_seconds", seconds(app.time)},
                    {"broken_jobs", app.broken_jobs}});
  return {{"policy", figures.label},
          {"energy_joules", figures.mean_energy.value()},
          {"energy_saving_ratio", figures.mean_energy_saving},
          {"mean_power_watts", figures.mean_power.value()},
          {"efficiency_gain_ratio", figures.mean_gain},
          {"mean_loss_ratio", figures.mean_loss},
          {"worst_loss_ratio", figures.worst_loss},
          {"worst_app", figures.worst_app},
          {"worst_job_loss_ratio", figures.worst_job_loss},
          {"apps_over", figures.apps_over},
          {"jobs", figures.jobs},
          {"broken_jobs", figures.broken_jobs},
          {"promise_kept", figures.apps_over == 0 && figures.broken_jobs == 0},
          {"apps", std::move(apps)}};
}

Json part_json(const Part& part, const Comparison& comparison) {
  Json policies = Json::array(), frontier = Json::array();
  for (const auto& figures : comparison.policies) policies.push_back(policy_json(figures));
  for (const auto& fixed : comparison.frontier) {
    Json entry = hindsight_json(fixed.result);
    entry["clock_mhz"] = fixed.clock.value();
    frontier.push_back(std::move(entry));
  }
  return {{"chip", part.spec.chip->name},
          {"title", part.title},
          {"workloads", part.spec.workloads.size()},
          {"delta", part.spec.delta},
          {"job_seconds", seconds(part.spec.work)},
          {"idle_before_seconds", seconds(part.spec.idle_before)},
          {"seed", part.spec.seed},
          {"seeds", part.spec.seeds},
          {"policies", std::move(policies)},
          {"oracle", hindsight_json(comparison.oracle)},
          {"frontier", std::move(frontier)},
          {"speed_times_real_time", seconds(comparison.simulated) / seconds(comparison.elapsed)}};
}

}  // namespace

Result<int> run_verb(const DemoOptions& options) {
  SystemClock clock;
  const SimChip reference = with_reference_sensors(*TRY(find_sim_chip("V100-SXM2")));
  const SimChip measured_by_dcgm = with_dcgm_sensors(*TRY(find_sim_chip("A100-SXM4")));
  std::vector<Part> parts;
  for (const char* name : kMeasuredChips) {
    const SimChip* chip = TRY(find_sim_chip(name));
    parts.push_back(TRY(built_in_part(*chip, options)));
    if (chip->name == measured_by_dcgm.name)
      parts.push_back(TRY(dcgm_part(measured_by_dcgm, options)));
  }
  if (!options.data.empty()) {
    const std::string tables = options.data + "/v100/performance.csv";
    if (::access(tables.c_str(), F_OK) != 0)
      return Error{Errc::not_found,
                   fmt::format("--data: no tables at {}: there is no '{}'", options.data, tables)};
    parts.push_back(TRY(tabled_part(reference, options)));
  }

  Json document = {{"parts", Json::array()}};
  Duration simulated{}, elapsed{};
  for (const Part& part : parts) {
    ProgressLine progress(part.spec.chip->name);
    const Instant begin = clock.now();
    const Comparison comparison =
        TRY(compare(part.spec, clock, [&](std::size_t done, std::size_t all) {
          progress.show(done, all, clock.now() - begin);
        }));
    progress.clear();
    simulated += comparison.simulated;
    elapsed += comparison.elapsed;
    if (options.json)
      document["parts"].push_back(part_json(part, comparison));
    else
      print_part(part, comparison, options.apps);
  }
  if (options.json) return print_json("demo", document);
  print(
      "Means over each workload's own figure, against max-freq, start-up and probing included. "
      "Efficiency is\n"
      "performance per watt. A workload that loses more than is allowed breaks the promise. The "
      "fixed\n"
      "clock (one for all workloads) and the oracle (the best clock for each that keeps the "
      "promise)\n"
      "know the workloads beforehand.\n");
  print("Simulated {:.0f} h of GPU time in {:.1f} s, {:.0f} times real time.\n",
        seconds(simulated) / 3600, seconds(elapsed), seconds(simulated) / seconds(elapsed));
  return 0;
}

}  // namespace derate::cli
