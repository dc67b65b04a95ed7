#include "govern/fleet/tuned_gpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "govern/fleet/policy_choice.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

// The limit that is set now, else the factory's; empty: neither is told.
std::optional<Watts> limit_of(const TunableGpu& gpu) {
  const auto now = gpu.control->settings();
  if (now.ok() && now->power_limit) return now->power_limit;
  if (gpu.capability->power_limits) return gpu.capability->power_limits->factory;
  return std::nullopt;
}

Result<KnobSettings> settings_of(const TuningPlan& plan, std::span<const TunableGpu> gpus,
                                 const Settings& settings) {
  if (plan.knob == Knob::power_limit) {
    std::vector<LimitedGpu> limited;
    for (const TunableGpu& gpu : gpus) limited.push_back({gpu.capability, limit_of(gpu)});
    return limit_settings(limited, plan.highest);
  }
  std::vector<Envelope> envelopes;
  for (const TunableGpu& gpu : gpus)
    envelopes.push_back(TRY(clock_envelope(*gpu.capability, settings)));
  return clock_settings(envelopes);
}

// The most that the GPUs together may draw: what a cost weighs time with.
Result<Watts> max_power_of(const TuningPlan& plan, std::span<const TunableGpu> gpus,
                           double highest) {
  if (plan.knob == Knob::power_limit) return Watts(highest * static_cast<double>(gpus.size()));
  Watts sum;
  for (const TunableGpu& gpu : gpus) {
    const auto limit = limit_of(gpu);
    if (!limit && plan.selector.kind == Selector::Kind::cost && plan.selector.eta < 1)
      return Error{
          Errc::not_supported,
          fmt::format("{}: it has no power limit that can be set, by which a cost weighs time; "
                      "allowed are the selectors energy, time, max-slowdown",
                      gpu.capability->id.uuid)};
    sum += limit.value_or(Watts());
  }
  return sum;
}

// All clocks that the GPU lists; any where it lists none.
Envelope whole_envelope(const Capability& capability) {
  const std::vector<Megahertz> any{Megahertz(1)};
  const auto& clocks = capability.sm_clocks.empty() ? any : capability.sm_clocks;
  return *Envelope::create(clocks, clocks.front(), clocks.back());
}

}  // namespace

Result<std::shared_ptr<TunedRun>> make_tuned_run(const TuningPlan& plan,
                                                 std::span<const TunableGpu> gpus,
                                                 const Settings& settings) {
  KnobSettings knob = TRY(settings_of(plan, gpus, settings));
  const Watts max_power = TRY(max_power_of(plan, gpus, knob.settings.back()));
  RunTunerOptions options{.knob = plan.knob};
  options.search.settings = std::move(knob.settings);
  options.search.resolution = knob.resolution;
  options.search.selector = plan.selector;
  options.search.max_power = max_power;
  options.search.start = plan.start;
  options.search.guard = plan.guard;
  if (plan.knob == Knob::power_limit) options.search.limited_gpus = static_cast<int>(gpus.size());
  options.known = plan.known;
  return std::make_shared<TunedRun>(std::move(options), gpus.size());
}

TuningState tuning_state(const TunedRun& run) {
  const RunTuner& tuner = run.tuner();
  TuningState out;
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

GovernedGpu observe_gpu(TelemetrySource& source, const Settings& settings) {
  const Envelope envelope = whole_envelope(source.capability());
  const PolicyInfo* info = *find_policy("nv-boost");
  GovernedGpu out{&source, nullptr,
                  *info->create({envelope, envelope.lowest(), *policy_params(*info, {})}), true,
                  envelope};
  out.tick = from_seconds(settings.observer.every_s);
  out.observed = true;
  return out;
}

Result<GovernedGpu> govern_tuned_gpu(TelemetrySource& source, ClockControl* control,
                                     const TunedRun& run, const Settings& settings) {
  TRY(found_lock(source.capability(), settings));
  Envelope envelope = whole_envelope(source.capability());  // limits leave the clock to the GPU
  if (run.knob() == Knob::clock) envelope = TRY(clock_envelope(source.capability(), settings));
  GovernedGpu out{&source, control, run.policy(), false, envelope};
  out.tick = TunedRun::kTick;
  out.on_drift = drift_rule(settings);
  return out;
}

}  // namespace derate
