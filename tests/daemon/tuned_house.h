// A house with a job that is tuned, and what its work truly does at each setting: for the tests and
// the figures of docs/tune.md.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include "house.h"
#include "tune/knob_settings.h"

namespace derate::cli {

// A job that says how far it is once a second, as `derate sim job --beat` does.
struct TunedHouse : House {
  explicit TunedHouse(int gpus, const char* chip, const char* app) : House(gpus, chip) {
    for (int i = 0; i < gpus; ++i) work(i, app);
    start();
    run(std::chrono::seconds(2));
  }
  TuningPlan plan(int gpus = 1) const {
    TuningPlan out;
    for (int i = 0; i < gpus; ++i)
      out.gpus.push_back(sim_capability(sims[static_cast<std::size_t>(i)]->chip(), i).id.uuid);
    return out;
  }
  void run_job(Duration time) {
    for (const Instant end = clock.now() + time; clock.now() < end;) {
      if (clock.now() >= next_report) {
        (void)worker->fleet()
            .report_work("job", {.run = 1, .done = sim(0).work_done(), .time = clock.now()})
            .ok();
        next_report = clock.now() + std::chrono::seconds(1);
      }
      (void)round();
    }
  }
  bool run_until_tuned(Duration longest) {
    for (const Instant end = clock.now() + longest; clock.now() < end;
         run_job(std::chrono::milliseconds(100)))
      if (worker->fleet().tuned("job")->tuner().stage() == RunTuner::Stage::holding) {
        run_job(std::chrono::seconds(1));
        return true;
      }
    return false;
  }
  Instant next_report{};
};

// What the work truly does at a setting, over 20 s when the GPU is warm.
inline KnobReading truth_at(const SimChip& chip, const char* app, Knob knob, double setting) {
  constexpr Duration kLong = std::chrono::seconds(20);
  SimGpu gpu(chip, SimOptions{.seed = 99});
  if (knob == Knob::power_limit) gpu.set_power_limit(Watts(setting));
  if (knob == Knob::clock) gpu.lock(Megahertz(setting), Megahertz(setting));
  gpu.start(*find_workload(chip, app), Duration::zero());
  gpu.advance_to(Instant(kLong));
  const double work = gpu.work_done();
  const Joules energy = gpu.energy();
  gpu.advance_to(Instant(2 * kLong));
  return {setting, (gpu.work_done() - work) / seconds(kLong), (gpu.energy() - energy) / kLong};
}

// How much more expensive the setting is than the best, as a share.
inline double excess(const RunTuner& tuner, const SimChip& chip, const char* app) {
  const auto& options = tuner.options();
  std::vector<KnobReading> all;
  for (const double each : options.search.settings)
    all.push_back(truth_at(chip, app, options.knob, each));
  for (KnobReading& each : all)  // below the guard nothing is to be had
    if (each.rate * options.search.guard < all.back().rate) each.power = Watts(1e6);
  const auto& [settings, selector, max_power] =
      std::tie(options.search.settings, options.search.selector, options.search.max_power);
  const double best = price(selector, max_power, all[best_reading(selector, max_power, all)]);
  const auto at = std::lower_bound(settings.begin(), settings.end(), tuner.best()->setting);
  return price(selector, max_power, all[static_cast<std::size_t>(at - settings.begin())]) / best -
         1;
}

}  // namespace derate::cli
