// The loop: sample -> estimate -> decide -> clamp -> actuate -> record, for every GPU, once a tick.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "core/record.h"
#include "device/telemetry_source.h"
#include "govern/actuator.h"
#include "govern/estimator.h"
#include "govern/group/groups.h"
#include "govern/safety.h"
#include "govern/schedule.h"
#include "policy/policy.h"
#include "telemetry/sampler.h"

namespace derate {

// One GPU under control.
struct GovernedGpu {
  TelemetrySource* source = nullptr;
  ClockControl* control = nullptr;  // null: dry run, decides and records, never writes
  std::unique_ptr<Policy> policy;
  bool as_published = false;
  Envelope envelope;
  Duration tick{};        // the policy's own control period; zero: every tick of the governor
  bool observed = false;  // only looked at: its load is not the governed node's
  DriftRule on_drift = DriftRule::reassert;          // `ignore` when as_published
  std::optional<JournalHandle> journal_handle = {};  // empty: nothing is kept on disk
  // As in govern/group/group_rule.h; empty: governed alone, whatever its work.
  std::string policy_key = {};
};

struct GovernorOptions {
  SafetyRules rules;
  SamplerOptions sampling;
  // Called before each write to a GPU. A driver that hangs blocks the loop for one GPU's patience;
  // the watchdog must not take several of these for a loop that hangs.
  std::function<void()> alive = [] {};
  // Called with how long the machine was suspended, before the first tick after it.
  std::function<void(Duration)> resumed = [](Duration) {};
};

// GPUs are numbered from 0 in the order in which they came; `at` is such a number.
class Governor {
 public:
  // Sources, controls and the clock outlive the governor.
  Governor(std::vector<GovernedGpu> gpus, Clock& clock, const GovernorOptions& options = {});

  // One tick of every GPU that is due; one record each, valid until the next tick.
  // `ReadDepth::all` ticks all of them and reads the expensive fields too.
  std::span<const Record> tick(ReadDepth depth = ReadDepth::due);
  // A tick of the GPU at `at` soon reads its energy counter, if that can have moved.
  void read_counter_next(std::size_t at, CounterNeed need = CounterNeed::now);
  // When the next GPU is due.
  Instant next_due() const;

  // What is known of the work of the GPU at `at` from now on. GPUs whose work goes in step are one
  // unit from the next tick on (govern/group/step_rule.h).
  void set_work(std::size_t at, WorkStatus work) { gpus_[at]->work = std::move(work); }

  // The bounds of the GPU at `at` from now on, besides those that rules of groups add in each tick.
  void bound(std::size_t at, std::vector<EnvelopeBound> bounds) {
    gpus_[at]->bounds = std::move(bounds);
  }

  // Groups of its GPUs: one more rule holds from the next tick on.
  Groups& groups() { return groups_; }

  // What the policy of the GPU at `at` says would come of other promises (policy/policy.h).
  std::vector<Forecast> forecast(std::size_t at, std::span<const double> deltas) const;

  // One more GPU, numbered after the others.
  void add(GovernedGpu gpu);
  // Puts another policy, source or control on the GPU at `at`. What was there makes no further
  // call to the GPU: restore it first. Gives what it has not restored, for a successor to do it.
  std::optional<JournalHandle> replace(std::size_t at, GovernedGpu gpu);
  // What is still to be restored on the GPU at `at`; empty when nothing is.
  std::optional<JournalHandle> unrestored(std::size_t at) const;

  // Gives the GPU at `at` back. Errors: those of its control.
  Result<void> restore(std::size_t at);
  // Gives every GPU back, going on past one that fails. Errors: all failures, each with its GPU.
  Result<void> restore();

 private:
  // What the governor keeps of one GPU between ticks.
  struct GpuControlState {
    GovernedGpu gpu;
    PolicySeat seat;
    Schedule schedule;
    Sampler sampler;
    Estimator estimator;
    Safety safety;
    Actuator actuator;
    WorkStatus work = {};
    std::vector<EnvelopeBound> bounds = {};
    Fraction busy{0};                    // at its last tick
    std::optional<Instant> worked = {};  // when it last had work, of one that is observed
  };

  std::unique_ptr<GpuControlState> make_state(GovernedGpu gpu) const;
  void note_suspension();
  std::vector<GroupGpu> group_gpus();
  std::vector<bool> all_due(ReadDepth depth);
  void read(GpuControlState& state, std::size_t at, ReadDepth depth);
  void pace_observed(GpuControlState& state, const std::optional<Sample>& sample) const;
  void bound(GpuControlState& state, Record& record, GroupGpu& gpu);
  void act(GpuControlState& state, Record& record, const GroupGpu& gpu);

  Clock& clock_;
  GovernorOptions options_;
  std::vector<std::unique_ptr<GpuControlState>> gpus_;
  Groups groups_;
  std::vector<Record> records_;
  Duration suspended_{};  // what the clock said at the last tick
};

}  // namespace derate
