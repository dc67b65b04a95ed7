// derate tune run -- CMD: tunes GPUs while CMD runs, and says what was measured.
#include <fmt/format.h>

#include <algorithm>

#include "base/exit_code.h"
#include "base/json.h"
#include "run_command.h"
#include "service/transport/daemon_call.h"
#include "terminal/output.h"
#include "tune/metric_reader.h"
#include "tune_trial.h"

namespace derate::cli {
namespace {

// Readings of the search and those that were left, ascending.
struct ShownReading {
  KnobReading reading;
  bool too_slow = false;
};

std::vector<ShownReading> readings_of(const RunTuner& tuner) {
  std::vector<ShownReading> out;
  for (const KnobReading& each : tuner.readings()) out.push_back({each, false});
  for (const KnobReading& each : tuner.too_slow()) out.push_back({each, true});
  std::sort(out.begin(), out.end(), [](const ShownReading& a, const ShownReading& b) {
    return a.reading.setting < b.reading.setting;
  });
  return out;
}

double energy_of(const KnobReading& reading) { return reading.power.value() / reading.rate; }

Result<TuningPlan> plan_of(const TuneRunOptions& options) {
  TuningPlan plan;
  if (!options.knob.empty()) plan.knob = TRY(parse_knob(options.knob));
  if (!options.selector.empty()) plan.selector = TRY(parse_selector(options.selector));
  if (options.highest_w) plan.highest = Watts(*options.highest_w);
  if (options.guard) plan.guard = *options.guard;
  return plan;
}

}  // namespace

std::string tuning_text(const TunedRun& run, Instant now) {
  const RunTuner& tuner = run.tuner();
  const char* unit = unit_of(run.knob());
  std::string out = fmt::format("\ntuned       {} by {}, {} of profiling\n", to_string(run.knob()),
                                to_string(tuner.options().search.selector),
                                duration_text(tuner.profiling_time(now)));
  const auto best = tuner.best(), reference = tuner.reference();
  for (const auto& [each, too_slow] : readings_of(tuner)) {
    const bool is_best = best && each.setting == best->setting && !too_slow;
    out += fmt::format("  {:>6.0f} {:<3}  {:>10.4g} /s  {:>5.0f} W  cost {:>10.4g} J{}\n",
                       each.setting, unit, each.rate, each.power.value(),
                       tuner.unit_cost(each).value(),
                       too_slow  ? "  too slow"
                       : is_best ? "  best"
                                 : "");
  }
  if (best && reference)
    out += fmt::format(
        "  at the best {} energy and {} speed of the highest; profiling cost {:.0f} J "
        "above the best\n",
        percent_text(energy_of(*best) / energy_of(*reference)),
        percent_text(best->rate / reference->rate), tuner.profiling_cost().value());
  return out + fmt::format("  at the end: {}\n", describe(run.order().why));
}

Json tuning_json(const TunedRun& run, Instant now) {
  const RunTuner& tuner = run.tuner();
  const auto reading_json = [&](const KnobReading& each) {
    return Json{{"setting", each.setting},
                {"work_per_second", each.rate},
                {"watts", each.power.value()},
                {"cost_joules", tuner.unit_cost(each).value()}};
  };
  Json readings = Json::array();
  for (const auto& [each, too_slow] : readings_of(tuner)) {
    readings.push_back(reading_json(each));
    readings.back()["too_slow"] = too_slow;
  }
  Json out = {{"knob", to_string(run.knob())},
              {"unit", unit_of(run.knob())},
              {"selector", to_string(tuner.options().search.selector)},
              {"tunings", tuner.tunings()},
              {"profiling_seconds", seconds(tuner.profiling_time(now))},
              {"profiling_cost_joules", tuner.profiling_cost().value()},
              {"setting", run.order().setting},
              {"reason", describe(run.order().why)},
              {"readings", std::move(readings)}};
  const auto best = tuner.best(), reference = tuner.reference();
  if (best) out["best"] = reading_json(*best);
  if (best && reference) {
    out["energy_ratio"] = energy_of(*best) / energy_of(*reference);
    out["performance_ratio"] = best->rate / reference->rate;
  }
  return out;
}

// Whoever may turn no knob has a daemon do it; what only this process can do, it does.
bool is_for_the_daemon(const TuneRunOptions& options) {
  if (!options.job.empty()) return true;
  if (!options.sim.chip.empty() || options.highest_w || options.guard || !options.records.empty())
    return false;
  const bool theirs = !options.model.empty() || !options.metric_pattern.empty() ||
                      !options.epoch_pattern.empty() || !options.metric_file.empty() ||
                      !options.oom_patterns.empty();
  return theirs || find_daemon().ok();
}

// What a command prints is read in the daemon's trials only.
Result<void> check_no_lines(const TuneRunOptions& options) {
  TRY(MetricReader::create({options.metric_pattern, options.epoch_pattern, options.oom_patterns}));
  if (options.metric_pattern.empty() && options.epoch_pattern.empty() &&
      options.metric_file.empty())
    return {};
  return Error{Errc::invalid_argument,
               "--metric-pattern, --epoch-pattern and --metric-file need the daemon, and none of "
               "--sim, --highest, --guard and --records"};
}

Result<TuningPlan> own_plan(const TuneRunOptions& options) {
  TRY(check_no_lines(options));
  return plan_of(options);
}

Result<int> run_verb(const TuneRunOptions& options) {
  if (is_for_the_daemon(options)) return run_trials(options);
  const auto plan = own_plan(options);
  if (plan.ok()) return run_command(options, *plan);
  warn("derate: {}\n", plan.error().message);
  return exit_code::kRunFailed;
}

}  // namespace derate::cli
