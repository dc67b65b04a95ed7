// Sums up a run on one GPU from its records: energy, time by clock, and how the promise was kept.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/record.h"
#include "signal/beat_rates.h"
#include "telemetry/clock_histogram.h"
#include "telemetry/energy_meter.h"

namespace derate {

// What a ledger has come to, as a value: what reports are made of.
struct GpuFigures {
  Duration time{};                           // from the first reading to the last
  std::optional<Joules> energy, integrated;  // `integrated`: by power readings alone
  bool from_counter = false;
  Duration counter_still{};           // the counter was read and did not move: power stands in
  std::optional<double> check_ratio;  // integrated / counted; empty: too short to compare
  std::optional<Watts> mean_power;
  std::optional<Megahertz> mean_clock;
  // Time by clock: measured, and locked, or what a dry run would lock. The GPU's own control is
  // `released`.
  std::map<Megahertz, Duration> clocks, asked_clocks;
  Duration released{}, capped{}, thermal{};   // capped: the power limit held the clock down
  Duration heartbeats{}, launches{};          // while they told how far the work was
  std::optional<double> launch_unsteadiness;  // Progress::rate_uncertainty, on average
  std::optional<double> heartbeats_moved;     // BeatRates::moved
  Duration without_work{};                    // no kernel ran, by the utilisation that was read
  Duration in_step{}, straggled{};            // as one of a unit (govern/group); slower than those
  std::string straggled_why;                  // the last time
  std::optional<Saving> saving;  // that the policy estimates; empty for one without curves
  // Mean performance relative to the highest clock by the policy's own model, over the time for
  // which it had one, and the share of that time. Empty when it never had.
  std::optional<Fraction> expected_performance;
  Fraction expected_coverage{};
  // A lower bound without a model: no kernel slows down by more than the clock does.
  std::optional<Fraction> clock_ratio;
  int ticks = 0, failed_reads = 0, writes = 0, failed_writes = 0;
  std::string last_error;

  bool operator==(const GpuFigures&) const = default;
};

class Ledger {
 public:
  // `highest` is the top of the envelope: what performance is relative to.
  explicit Ledger(Megahertz highest) : highest_(highest) {}

  void add(const Record& record);

  GpuFigures figures() const;
  const EnergyMeter& energy() const { return energy_; }

 private:
  void add_time(Duration held);

  Megahertz highest_;
  EnergyMeter energy_;
  ClockHistogram measured_;
  BeatRates beats_;
  GpuFigures sums_;  // but for those that are made of the members here
  Duration total_{};
  double unsteadiness_seconds_ = 0;  // of launches, x time
  double expected_seconds_ = 0;      // expected performance x time
  double expected_time_ = 0;         // time with an expectation
  double ratio_seconds_ = 0;         // clock ratio x time

  // Of the last record; held until the next.
  struct Last {
    std::optional<Instant> time;
    std::optional<Megahertz> locked;
    std::optional<Fraction> expected;
    std::uint64_t throttle = 0;
    std::optional<Progress> progress;
    bool in_step = false, straggles = false, without_work = false;
  };
  Last last_;
};

}  // namespace derate
