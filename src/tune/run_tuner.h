// Tunes one knob of a job while it runs: measures its work at a setting, then at the next, and
// stays at the best. Pure: what is seen comes in with its time, a setting to have goes out; who
// asks carries it out (docs/tune.md).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/decision.h"
#include "core/work_status.h"
#include "tune/knob.h"
#include "tune/knob_settings.h"
#include "tune/work_meter.h"

namespace derate {

// What is seen of the job in a round of the loop.
struct RunSight {
  Instant time{};
  // How far the job last said it is, in any unit: steps, epochs and parts of them.
  std::optional<Progress> work;
  // Of all of its GPUs, up to `time`, from any beginning: the counter, and power since it was read.
  std::optional<Joules> energy;
  // All of its GPUs have the setting that was asked for last.
  bool in_force = false;
};

// What is wanted now.
struct RunOrder {
  double setting = 0;  // one of the list, for all of the job's GPUs
  bool profiling = false;
  Reason why;
};

struct RunTunerOptions {
  Knob knob = Knob::power_limit;
  KnobSearchOptions search;
  // Readings of such work on such GPUs, as an earlier run has left them: it begins at the best of
  // them. What is not at a setting of the list is left out.
  std::vector<KnobReading> known = {};
};

class RunTuner {
 public:
  // Sensors: a power reading is a mean over up to 1 s, the counter is read each second
  // (docs/sensors.md). After that what they show is of the new setting.
  static constexpr Duration kSettle = std::chrono::seconds(1);
  // Of a span that began before that: the share which is not of the setting. At most 20 % off, it
  // makes an error of 0.4 %; and reports minutes apart are not waited for twice.
  static constexpr double kUnsettled = 0.02;
  // Of a reading. The counter is off by up to 1.6 % of a second's joules at each end: 0.5 % of 5 s.
  static constexpr Duration kLeast = std::chrono::seconds(5);
  // The first, to which all others are compared, also tells how much the job's rate scatters: of
  // five blocks that is known to a third, of ten to a quarter.
  static constexpr Duration kLeastOfFirst = std::chrono::seconds(10);
  // ... unless its error is larger than this, until kMost.
  static constexpr double kPrecision = 0.005;
  // What the search takes for one price: three standard errors of a difference.
  static constexpr double kTie = 4 * kPrecision;
  static constexpr Duration kMost = std::chrono::minutes(1);
  // After two seconds' blocks a setting is left that is slower than the guard by this factor; but
  // among few reports a pause looks the same, and more are waited for.
  static constexpr double kGlance = 1.1;
  // A report that takes so many times longer than the guard allows is not waited for.
  static constexpr double kOverdue = 1.25;
  // At the best: so often it is looked whether rate and power are still those of its reading ...
  static constexpr Duration kWatch = std::chrono::seconds(10);
  // ... and so many looks in a row that differ by more than this are a change. The rate of steady
  // work stays within 1 or 2 %; its power follows the temperature by more.
  static constexpr int kLooks = 3;
  static constexpr double kRateChange = 0.05, kPowerChange = 0.10;
  // Then it is tuned again, but not before so many times the time that profiling took is over, so
  // that work which changes for ever is not profiled for more than a tenth of its time.
  static constexpr double kRest = 10;
  static constexpr Duration kShortestRest = std::chrono::minutes(1);
  // Without a report for that long, and for three times the longest so far, it stays at the highest
  // setting: nobody knows what a lower one does to the job.
  static constexpr Duration kSilence = std::chrono::minutes(2);
  // A setting that does not come into force is given up after the first, tried again after the
  // second.
  static constexpr Duration kRefused = std::chrono::seconds(30),
                            kTryAgain = std::chrono::minutes(5);

  enum class Stage : std::uint8_t {
    profiling,
    holding,  // at the best
    silent,   // the job does not say how far it is: at the highest setting
    refused,  // settings do not come into force: at the highest
  };

  explicit RunTuner(RunTunerOptions options);

  // Once a round, in order of time.
  RunOrder next(const RunSight& sight);

  Stage stage() const { return stage_; }
  // Of the present search, ascending by setting; at least one, at the highest, once it is tuned().
  std::span<const KnobReading> readings() const { return search_.readings(); }
  // Settings that were left because they were slower than the guard allows, as far as measured.
  std::span<const KnobReading> too_slow() const { return too_slow_; }
  // Every setting that matters is measured.
  bool tuned() const { return search_.done(); }
  // Empty before the first reading, of the highest setting.
  std::optional<KnobReading> best() const;
  std::optional<KnobReading> reference() const;
  // J of a unit of work at a reading, as the selector counts them (cost_of): of all the work that a
  // job or an epoch has, it is that many times as much.
  Joules unit_cost(const KnobReading& reading) const;
  // What profiling cost above the same work at the setting that was then the best; of one that is
  // under way, above the best so far.
  Joules profiling_cost() const;
  Duration profiling_time(Instant now) const;
  int tunings() const { return tunings_; }  // completed, in this run

  const RunTunerOptions& options() const { return options_; }

 private:
  void ask(double setting, Instant now);
  void go_on(Instant now);
  void look_at_force(const RunSight& sight);
  void look_at_silence(Instant now, const std::optional<WorkSpan>& span);
  bool counts(const WorkSpan& span) const;
  void take(const WorkSpan& span, Instant now);
  void judge(Instant now);
  void watch(Instant now);
  bool overdue(Instant now) const;
  bool enough(const WorkMeasure& measure) const;
  void add_scatter(const WorkMeasure& measure);
  bool too_slow(const WorkMeasure& measure, double margin) const;
  void leave(const std::optional<WorkMeasure>& measure, Instant now);
  void begin_profiling(Instant now);
  void end_profiling(Instant now);
  Reason why() const;

  RunTunerOptions options_;
  KnobSearch search_;
  std::vector<KnobReading> too_slow_;
  SpanMaker spans_;
  WorkMeter meter_;  // of the setting asked for
  Stage stage_ = Stage::profiling;
  bool begun_ = false, has_progress_ = false, energy_seen_ = false;
  double asked_ = 0;
  Instant asked_at_{}, last_in_force_{}, refused_at_{}, progress_at_{};
  std::optional<Instant> in_force_since_, settled_at_;
  // Between reports: the longest of all, and at the highest setting the longest and the usual one.
  Duration longest_span_{}, longest_reference_{}, usual_reference_{};

  WorkSpan profiled_;  // all of the present profiling; begin is its own
  Joules cost_{};      // of those before
  Duration time_{};
  int tunings_ = 0;
  std::optional<Instant> tuned_at_;
  Duration last_profiling_{};
  int changed_ = 0;  // looks in a row
  // Of the readings so far: their blocks' scatter, squared, and how many blocks that is of.
  double scatter_squares_ = 0, scatter_blocks_ = 0;
};

}  // namespace derate
