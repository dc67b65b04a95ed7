// How near to the best setting tuning comes and what it takes, on every simulated workload of three
// chips: the table of docs/tune.md, as CSV.
#include <fmt/format.h>

#include "tuned_house.h"

namespace derate::cli {
namespace {

void figures(const SimChip& chip, const std::string& app, const char* selector, Knob knob) {
  TunedHouse house(1, chip.name.c_str(), app.c_str());
  TuningPlan plan = house.plan();
  plan.selector = *parse_selector(selector);
  plan.knob = knob;
  CHECK(house.worker->fleet().take_for_tuning("job", plan).ok());
  const Instant begin = house.clock.now();
  const bool tuned = house.run_until_tuned(std::chrono::minutes(20));
  const RunTuner& tuner = house.worker->fleet().tuned("job")->tuner();
  const auto best = tuner.best(), highest = tuner.reference();
  if (!tuned || !best || !highest)
    return fmt::print("{},{},{},{},not tuned\n", chip.name, app, selector, to_string(knob));
  const auto energy = [](const KnobReading& at) { return at.power.value() / at.rate; };
  const double unit = tuner.unit_cost(*best).value();
  fmt::print("{},{},{},{},{},{},{:.1f},{:.0f},{:.4f},{:.4f},{:.4f},{:.1f}\n", chip.name, app,
             selector, to_string(knob), tuner.options().search.settings.size(),
             tuner.readings().size() + tuner.too_slow().size(),
             seconds(house.clock.now() - begin) - 1, best->setting,
             excess(tuner, chip, app.c_str()), energy(*best) / energy(*highest) - 1,
             highest->rate / best->rate - 1, tuner.profiling_cost().value() / unit / best->rate);
}

}  // namespace
}  // namespace derate::cli

int main() {
  using namespace derate;
  fmt::print(
      "chip,workload,selector,knob,settings,measured,seconds,best,cost_above_true_best,"
      "energy_change,time_change,profiling_cost_in_seconds_at_best\n");
  for (const char* name : {"V100-SXM2", "A100-SXM4", "H200"}) {
    const SimChip& chip = **find_sim_chip(name);
    const auto workloads = *built_in_workloads(chip);
    for (const Workload& workload : workloads)
      for (const char* selector : {"cost", "energy", "max-slowdown"})
        for (const Knob knob : {Knob::power_limit, Knob::clock})
          cli::figures(chip, workload.name, selector, knob);
  }
}
