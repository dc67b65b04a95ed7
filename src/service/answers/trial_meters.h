// Meters of running trials: energy, time and cost of each, and the knob (power limit or clock) that
// is turned for it. Each is measured by a window of energy over its GPUs; where these are tuned by
// a run, its costs of an epoch come from that run. A knob is turned only for users that may have
// that, and that work on the GPUs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "govern/fleet/tuned_gpus.h"
#include "service/answers/energy_service.h"
#include "service/answers/trial_gpus.h"
#include "tune/trial_registry.h"
#include "tune/trial_writer.h"

namespace derate {

// What a trial's work is counted in.
enum class WorkUnit : std::uint8_t { epochs = 1, steps = 2 };

// What a running trial is measured by.
struct TrialMeter {
  struct FirstReport {
    double epochs = 0, cost = 0;  // cost in J
  };
  JobSpec work;                           // what is asked of the knob, and how costs are counted
  Watts max_power{};                      // of its GPUs together: what its time is weighed with
  TrialPaid before = {};                  // until the daemon was last started
  bool works = false;                     // its user has, on its GPUs
  Instant worked{};                       // when that was last seen
  bool knob = false;                      // it is turned
  std::string knob_why = {};              // else why not
  std::optional<FirstReport> first = {};  // that told of epochs
  std::optional<double> done = {};        // work, as the knob is told of it
  std::optional<TuneProfileKey> profile = {};  // what is measured of the knob is kept under
};

class TrialMeters {
 public:
  // A trial whose user has had no process on each of its GPUs for that long is abandoned, and until
  // there was one no limit or clock is turned for it. Root and the daemon's own user need none.
  static constexpr Duration kWorkPatience = std::chrono::seconds(60);

  struct Options {
    Log log = {};
    // Whether a GPU, by its UUID, has a process of the user; empty: nobody is asked for one.
    std::function<bool(const std::string& gpu, std::uint32_t uid)> works_on = {};
    // Who has the GPUs, and outlives the meters; null: limits and clocks are left alone.
    TunedGpus* gpus = nullptr;
    bool for_everyone = false;  // knobs are turned for any user, else for root and our own
  };

  // The references outlive the meters.
  TrialMeters(Clock& clock, EnergyService& energy, TrialWriter& writer, Options options);
  TrialMeters(const TrialMeters&) = delete;
  TrialMeters& operator=(const TrialMeters&) = delete;

  void set_for_everyone(bool everyone) { options_.for_everyone = everyone; }

  // Of a trial of the user that has not begun.
  TrialMeter meter_for(std::uint32_t uid, std::span<const TuneGpu> gpus, const JobSpec& work) const;
  // Has the knob turned for the trial; else the meter says why not. `gpus`: the trial's.
  void take_knob(const TrialEntry& trial, std::span<const TuneGpu> gpus, TrialMeter& meter);
  // From now on. A window that cannot be opened is logged, and the trial costs nothing.
  void begin(const TrialEntry& trial, TrialMeter meter);
  // Measures one on that ran before the daemon was started again; its knob is taken anew.
  void take_up(const TrialEntry& trial, std::span<const TuneGpu> gpus, const JobSpec& work);
  // Gives its GPUs back and keeps what was measured of the knob. Nothing when it is not measured.
  void end(std::int64_t trial);
  // Gives every GPU back, because it is closed; the trials are measured on.
  void release_gpus();

  // Looks whether the user works on the GPUs, and takes the knob where that begins. `gpus`: the
  // trial's; null while they are not open: of those nobody knows who works there. True when the
  // user has been away for kWorkPatience.
  bool is_abandoned(const TrialEntry& trial, const std::vector<TuneGpu>* gpus);
  bool is_measured(std::int64_t trial) const { return meters_.contains(trial); }
  // It is measured, and its user was never seen to work on its GPUs.
  bool is_unused(std::int64_t trial) const;
  // Each of the GPUs is known to have a process of the user.
  bool has_processes(std::uint32_t uid, std::span<const std::string> gpus) const;

  // How much of the trial's work is done, in the unit that is reported to its knob.
  void set_work_done(std::int64_t trial, double done);
  // Reports it to the knob, where one is turned.
  void report_work(std::int64_t trial, WorkUnit unit, double done);
  // Until now, with so many epochs done; empty: as many as were reported.
  TrialPaid paid(const TrialEntry& trial, std::optional<double> epochs);
  // What happens to the knob, for people; empty when the trial is not measured.
  std::string knob_text(std::int64_t trial) const;

 private:
  bool may_turn(std::uint32_t uid) const;
  bool works_on(std::uint32_t uid, std::span<const std::string> gpus) const;
  std::optional<std::string> why_left_alone(const TrialMeter& meter, std::uint32_t uid) const;
  TrialPaid used(const TrialEntry& trial, const TrialMeter& meter);
  void give_back(std::int64_t trial);
  void keep_profile(const TrialMeter& meter, const TuningState& state);

  Clock& clock_;
  EnergyService& energy_;
  TrialWriter& writer_;
  Options options_;
  std::map<std::int64_t, TrialMeter> meters_;  // of running trials
};

}  // namespace derate
