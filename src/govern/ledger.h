// Sums up a run on one GPU from its records: energy, time by clock, and how the promise was kept.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/record.h"
#include "telemetry/clock_histogram.h"
#include "telemetry/energy_meter.h"

namespace derate {

// What a ledger has come to, as a value: what reports are made of.
struct GpuFigures {
  Duration time{};                           // from the first reading to the last
  std::optional<Joules> energy, integrated;  // `integrated`: by power readings alone
  bool from_counter = false;
  std::optional<Watts> mean_power;
  std::optional<Megahertz> mean_clock;
  std::map<Megahertz, Duration> clocks, asked_clocks;  // time by clock
  Duration released{}, capped{}, thermal{};
  Duration heartbeats{}, launches{};          // while they told how far the work was
  std::optional<double> launch_unsteadiness;  // Progress::rate_uncertainty, on average
  Duration in_step{}, straggled{};            // as one of a unit (govern/group); slower than those
  std::string straggled_why;                  // the last time
  std::optional<Saving> saving;
  std::optional<Fraction> expected_performance, clock_ratio;
  Fraction expected_coverage{};
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
  const ClockHistogram& measured_clocks() const { return measured_; }
  // Time by locked (or, in a dry run, asked-for) clock; the GPU's own control is time_released().
  const std::map<Megahertz, Duration>& asked_clocks() const { return asked_; }
  Duration time_released() const { return released_; }

  // Mean performance relative to the highest clock by the policy's own model, over the time for
  // which it had one; empty when it never had.
  std::optional<Fraction> expected_performance() const;
  // The share of the time that expected_performance() covers.
  Fraction expected_coverage() const;
  // What the policy estimates that was saved; empty for a policy without curves.
  const std::optional<Saving>& saving() const { return saving_; }
  // A lower bound without a model: no kernel slows down by more than the clock does.
  std::optional<Fraction> clock_ratio() const;

  int ticks() const { return ticks_; }
  int failed_reads() const { return failed_reads_; }
  int writes() const { return writes_; }
  int failed_writes() const { return failed_writes_; }
  const std::string& last_error() const { return last_error_; }
  Duration time_capped() const { return capped_; }  // power cap in force
  Duration time_thermal() const { return thermal_; }

 private:
  void add_time(Duration held);

  Megahertz highest_;
  EnergyMeter energy_;
  ClockHistogram measured_;
  std::map<Megahertz, Duration> asked_;
  Duration released_{}, total_{}, capped_{}, thermal_{}, heartbeats_{}, launches_{}, in_step_{},
      straggled_{};
  double unsteadiness_seconds_ = 0;  // of launches, x time
  std::optional<Saving> saving_;
  double expected_seconds_ = 0;  // expected performance x time
  double expected_time_ = 0;     // time with an expectation
  double ratio_seconds_ = 0;     // clock ratio x time
  int ticks_ = 0, failed_reads_ = 0, writes_ = 0, failed_writes_ = 0;
  std::string last_error_;
  // Of the last record; held until the next.
  std::optional<Instant> last_time_;
  std::optional<Megahertz> last_locked_;
  std::optional<Fraction> last_expected_;
  std::uint64_t last_throttle_ = 0;
  std::optional<Progress> last_progress_;
  bool last_in_step_ = false, last_straggles_ = false;
  std::string straggled_why_;
};

}  // namespace derate
