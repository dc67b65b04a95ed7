// derate demo serve: policies on a simulated engine that serves a language model, one table a load.
#include <fmt/format.h>

#include "base/clock.h"
#include "base/json.h"
#include "command_options.h"
#include "demo_live.h"
#include "device/sim/serving/serving_requests.h"
#include "lab/serving/compare_serving.h"
#include "policy/published_serving/published_serving.h"
#include "policy/registry/registry.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr double kTableLowest = 0.577;  // of the top clock: 750 of 1300 MHz, the tables' range
constexpr double kFewBroken = 0.02;     // of the windows
constexpr double kTraceS = 1800;
constexpr const char* kTraceFile = "/serving/azure_conversation_30min.csv";

Result<ServingPolicy> demo_policy(const char* name) {
  const PolicyInfo* info = TRY(find_policy(name));
  return ServingPolicy{name, info, default_params(info->params)};
}

// The highest clock of the chip that is at most that.
Megahertz clock_within(const SimChip& chip, Megahertz most) {
  Megahertz out = chip.sm_clocks.front();
  for (const Megahertz clock : chip.sm_clocks)
    if (clock <= most) out = clock;
  return out;
}

Result<CompareServing> demo_spec(const DemoServeOptions& options) {
  CompareServing spec;
  spec.chip = TRY(find_sim_chip(options.chip));
  spec.law = TRY(find_serving_law(*spec.chip, options.engine));
  spec.limits = {
      .most_running = options.most_running,
      .step_tokens = options.step_tokens > 0 ? options.step_tokens : spec.law.step_tokens,
      .kv_tokens = spec.law.kv_tokens};
  spec.trace =
      options.data.empty() ? assumed_trace(1) : TRY(load_requests(options.data + kTraceFile));
  spec.trace_s = kTraceS;
  spec.loads = options.loads;
  spec.policies.push_back(TRY(demo_policy("slo")));
  for (const PolicyInfo& info : serving_rivals())
    spec.policies.push_back({info.name, &info, default_params(info.params)});
  for (const char* name : {"assure", "efficient-fix"})
    spec.policies.push_back(TRY(demo_policy(name)));
  spec.highest = clock_within(*spec.chip, spec.law.top);
  spec.lowest = clock_within(*spec.chip, spec.law.top * kTableLowest);
  spec.seeds = options.seeds;
  spec.first_seed = static_cast<std::uint64_t>(options.seed);
  return spec;
}

void add_row(Table& table, const std::string& label, const ServingFigures& figures) {
  const int broken = figures.windows - figures.kept;
  table.add(
      {label, percent_text(figures.saved), fmt::format("{:.3f} J", figures.joules_per_token()),
       percent_text(figures.late, 2), fmt::format("{:.2f} points", 100 * figures.most_caused),
       fmt::format("{}", figures.late_first_tokens),
       fmt::format("{} of {}", figures.kept, figures.windows)},
      broken > kFewBroken * figures.windows ? Paint::bad : Paint::plain);
}

void print_load(const CompareServing& spec, const ServingLoad& load) {
  print("{}\n", toned(fmt::format("{:.0f} % of what the top clock serves: {:.2f} requests a second",
                                  100 * load.load, load.rate),
                      Paint::strong));
  print("promise: {:.0f} % of tokens within {:.0f} ms of the one before; {} h\n",
        100 * spec.quantile, 1000 * load.edge_s, spec.seeds);
  Table table({"policy", "saved", "energy/token", "late tokens", "caused, worst", "late first",
               "10-minute windows kept"});
  add_row(table, fmt::format("top clock, {:.0f} MHz", spec.highest.value()), load.top);
  for (const ServingFigures& each : load.policies) add_row(table, each.label, each);
  if (load.best_constant)
    add_row(table,
            fmt::format("fixed {:.0f} MHz (in hindsight)", load.best_constant->clock.value()),
            *load.best_constant);
  print("{}\n", table.text());
}

Json figures_json(const ServingFigures& figures) {
  return {{"policy", figures.label},
          {"energy_joules", figures.joules},
          {"energy_saving_ratio", figures.saved},
          {"joules_per_token", figures.joules_per_token()},
          {"late_tokens_ratio", figures.late},
          {"caused_most_ratio", figures.most_caused},
          {"late_first_tokens", figures.late_first_tokens},
          {"windows", figures.windows},
          {"windows_kept", figures.kept}};
}

Json load_json(const ServingLoad& load) {
  Json policies = Json::array();
  policies.push_back(figures_json(load.top));
  for (const ServingFigures& each : load.policies) policies.push_back(figures_json(each));
  Json out = {{"load_ratio", load.load},
              {"requests_per_second", load.rate},
              {"promised_seconds", load.edge_s},
              {"policies", std::move(policies)}};
  if (load.best_constant) {
    out["best_constant"] = figures_json(*load.best_constant);
    out["best_constant"]["clock_mhz"] = load.best_constant->clock.value();
  }
  return out;
}

}  // namespace

Result<int> run_verb(const DemoServeOptions& options) {
  SystemClock clock;
  const CompareServing spec = TRY(demo_spec(options));
  ProgressLine progress(spec.chip->name);
  const Instant begin = clock.now();
  const ServingComparison comparison =
      TRY(compare_serving(spec, clock, [&](std::size_t done, std::size_t all) {
        progress.show(done, all, clock.now() - begin);
      }));
  progress.clear();
  const ServingLoad& first = comparison.loads.front();
  const DemoLoad live{spec.chip->name, spec.law.name, first.rate, first.edge_s};
  if (options.json) {
    Json document = {
        {"chip", spec.chip->name},   {"engine", spec.law.name},
        {"source", spec.law.source}, {"capacity_requests_per_second", comparison.capacity},
        {"seeds", spec.seeds},       {"loads", Json::array()}};
    for (const ServingLoad& load : comparison.loads) document["loads"].push_back(load_json(load));
    if (options.live_s > 0)
      for (const LiveRun& run : TRY(demo_live(options, live)))
        document["live"].push_back({{"policy", run.policy}, {"energy_joules", run.joules}});
    return print_json("demo serve", document);
  }
  print(
      "{} on a simulated {}, at most {} requests at a time: {:.2f} requests a second at {:.0f} "
      "MHz\n",
      spec.law.name, spec.chip->name, spec.limits.most_running, comparison.capacity,
      spec.highest.value());
  print("Fitted to {}{}; arrivals: {}\n\n", spec.law.source,
        spec.law.assumed ? " (how it follows the clock is assumed)" : "",
        options.data.empty() ? "drawn (assumed)" : "the Azure 2023 trace of conversations");
  for (const ServingLoad& load : comparison.loads) print_load(spec, load);
  print(
      "Caused: the share of tokens that came late and would not have at the top clock, in the "
      "worst\n"
      "window. Late first: first tokens more than twice as late as at the top clock. A window is "
      "kept\n"
      "with at most 0.30 points and one such token. The fixed clock is the lowest in energy of "
      "those\n"
      "that are kept in 99 % of the windows; in few hours chance is kind to it (--seeds). "
      "Simulated in\n"
      "{:.1f} s; not tested on a real engine.\n",
      seconds(clock.now() - begin));
  if (options.live_s > 0)
    print("{}", live_text(TRY(demo_live(options, live)), live, options.live_s));
  return 0;
}

}  // namespace derate::cli
