// derate lab attribution: the methods that split a GPU's power, judged where the truth is known.
#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/json.h"
#include "command_options.h"
#include "lab_attribution_view.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Result<AttributionBench> bench_of(const LabAttributionOptions& options) {
  AttributionBench out{.methods = options.methods,
                       .first_seed = options.first_seed,
                       .seeds = options.seeds,
                       .length = std::chrono::minutes(options.minutes),
                       .threads = options.threads,
                       .driver_cost = options.driver_cost};
  for (const std::string& name : options.scenarios)
    out.scenarios.push_back(TRY(find_tenant_scenario(name)));
  if (options.scenarios.empty())
    for (const TenantScenario& scenario : tenant_scenarios()) out.scenarios.push_back(&scenario);
  return out;
}

}  // namespace

Result<int> run_verb(const LabAttributionOptions& options) {
  const AttributionBench bench = TRY(bench_of(options));
  watch_signals();
  SystemClock clock;
  ProgressLine progress("runs");
  const Instant begin = clock.now();
  const BenchHooks hooks{
      [&](std::size_t done, std::size_t all) { progress.show(done, all, clock.now() - begin); },
      [] { return stop_signal() != 0; }};
  auto ran = run_attribution(bench, clock, hooks);
  progress.clear();
  const auto results = TRY(std::move(ran));
  if (!results) {
    warn("derate: stopped before all runs were done: no figures\n");
    return 128 + stop_signal();
  }
  if (options.json)
    print_json("lab attribution", attribution_json(bench, *results));
  else
    print("{}", attribution_text(bench, *results));
  for (const ScenarioResult& result : *results)
    if (summary_of(result).unsettled_mj != 0) return exit_code::kFailure;
  return exit_code::kOk;
}

}  // namespace derate::cli
