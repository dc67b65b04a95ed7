// Interface of GPUs whose power limit or clock is tuned for a job while it runs (TunedGpus): the
// plan, taking and giving back GPUs, reports of work, readings and costs. The fleet implements it,
// for derated's trials and for `derate tune run`.
//
//   take_for_tuning("7", plan)      the GPUs carry out what a RunTuner orders, in place of what
//                                   the configuration or a command wants there
//   report_work("7", {1, 12.5, now})
//                                   whenever the job says how far it is; or it beats, and the beats
//                                   of its processes on these GPUs are heard without a call
//   tuning("7")                     readings, what profiling cost, what a unit of work costs: times
//                                   the work of an epoch it is the epoch's
//   give_back_tuned("7")            when the job has ended or its client is silent: each GPU is
//                                   restored to what was found, then what is wanted there comes
//                                   back
//
// If the process ends meanwhile, the GPUs are restored like any governed GPU, by journal, lease and
// guard. All calls are made on the loop's own thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/settings.h"
#include "core/capability.h"
#include "device/clock_control.h"
#include "govern/governor.h"
#include "tune/tuned_run.h"

namespace derate {

struct TuningPlan {
  std::vector<std::string> gpus;  // UUIDs, each once, not empty
  Knob knob = Knob::power_limit;
  Selector selector;
  // The highest power limit that may be used; empty: the lowest of those found on the GPUs.
  std::optional<Watts> highest = {};
  std::optional<double> start = {};     // where the best may lie
  std::vector<KnobReading> known = {};  // of such work on such GPUs, from an earlier run
  double guard = 1.5;
};

struct TuningState {
  std::string what;  // for people: "150 W, the best of 4"
  double profiling_cost = 0;
  // J, of a unit of work at the setting chosen and at the highest; empty before they are known.
  std::optional<double> unit_cost = {}, highest_unit_cost = {};
  std::vector<KnobReading> readings = {};  // to be kept
};
TuningState tuning_state(const TunedRun& run);

class TunedGpus {
 public:
  virtual ~TunedGpus() = default;
  // Errors: busy (the GPUs are not open, one is tuned already or governed by another process),
  // not_found for a GPU, not_supported where its driver lets nobody turn the knob,
  // invalid_argument for a limit or a name that is taken. Then all of them are as they were.
  virtual Result<void> take_for_tuning(const std::string& name, const TuningPlan& plan) = 0;
  // Errors: not_found; those of restoring: what is left is tried again as ever.
  virtual Result<void> give_back_tuned(const std::string& name) = 0;
  // Errors: not_found.
  virtual Result<void> report_work(const std::string& name, const Progress& done) = 0;
  // Empty when there is none of that name, any more: an operator's `release` ends it.
  virtual std::optional<TuningState> tuning(const std::string& name) const = 0;
};

// A GPU to tune, as it was found: nothing of ours is set on it.
struct TunableGpu {
  const Capability* capability = nullptr;
  ClockControl* control = nullptr;
};

// Of the plan's GPUs. Errors: those of the settings (tune/knob_settings.h) and the envelope;
// not_supported where a cost needs a power limit and none is known.
Result<std::shared_ptr<TunedRun>> make_tuned_run(const TuningPlan& plan,
                                                 std::span<const TunableGpu> gpus,
                                                 const Settings& settings);

// One of the run's GPUs as the governor takes it, without a journal. Errors: those of the envelope.
Result<GovernedGpu> govern_tuned_gpu(TelemetrySource& source, ClockControl* control,
                                     const TunedRun& run, const Settings& settings);

// A GPU that is only read: it has no control, and its policy never sets a clock.
GovernedGpu observe_gpu(TelemetrySource& source, const Settings& settings);

}  // namespace derate
