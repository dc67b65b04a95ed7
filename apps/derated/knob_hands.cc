#include "knob_hands.h"

#include <fmt/format.h>

namespace derate::cli {
namespace {

std::string name_of(std::int64_t trial) { return fmt::format("trial {}", trial); }

Result<void> begin(TunedGpus& gpus, const KnobTrial& trial) {
  TuningPlan plan;
  plan.gpus = trial.gpus;
  plan.knob = TRY(parse_knob(trial.knob));
  plan.selector = trial.selector;
  plan.known = trial.known;
  return gpus.take_for_tuning(name_of(trial.trial), plan);
}

KnobState state_of(const TunedRun& run) {
  const RunTuner& tuner = run.tuner();
  KnobState out;
  out.what = fmt::format("{:g} {}: {}", run.order().setting, unit_of(run.knob()),
                         describe(run.order().why));
  out.profiling_cost = tuner.profiling_cost().value();
  if (const auto best = tuner.best()) out.unit_cost = tuner.unit_cost(*best).value();
  if (const auto highest = tuner.reference())
    out.highest_unit_cost = tuner.unit_cost(*highest).value();
  // Of a search that the run's end cuts short, too: the next run goes on with it.
  out.readings.assign(tuner.readings().begin(), tuner.readings().end());
  return out;
}

}  // namespace

KnobHands knob_hands(TunedGpus& gpus, Clock& clock) {
  KnobHands out;
  out.begin = [&gpus](const KnobTrial& trial) { return begin(gpus, trial); };
  out.update = [&gpus, &clock](std::int64_t trial, WorkUnit unit, double done) {
    // An operator's `release` may have ended it.
    const auto source = static_cast<std::uint64_t>(unit);
    (void)gpus.tell_work(name_of(trial), {source, done, clock.now()}).ok();
  };
  out.state = [&gpus](std::int64_t trial) {
    const TunedRun* run = gpus.tuned(name_of(trial));
    return run == nullptr ? KnobState{"given back", 0, {}, {}, {}} : state_of(*run);
  };
  out.end = [&gpus](std::int64_t trial) { (void)gpus.give_back_tuned(name_of(trial)).ok(); };
  return out;
}

}  // namespace derate::cli
