// The energy that a GPU has used up to any instant, so that the energy between two instants is a
// difference: windows of all lengths come from one account, and their sums agree.
#pragma once

#include <optional>

#include "core/counter_watch.h"
#include "core/sample.h"

namespace derate {

// The board's power, from its fastest plausible reading; empty if the sample has none.
std::optional<Watts> board_power(const Sample& sample);

// Since the odometer's first instant; each only grows.
struct EnergyTotals {
  Instant time{};
  Joules energy{};       // by the counter where it can be, else by power
  Duration counted{};    // time for which `energy` is by the counter
  Duration uncovered{};  // time that neither covers
  Joules integrated{};   // by power alone
  Duration dark{};       // time without power
  // Where both cover the same time: the cross-check.
  Joules checked_counter{}, checked_integrated{};
  Duration checked{};
  int resets = 0;    // of the counter
  Duration still{};  // time in which the counter was read and stood still: power stands in
};

// A larger difference between power readings and the counter is reported. The counter's step of
// 0.1 s at both ends is 2 % of kLeastChecked; power readings of 5 s and more are off by up to 4.9 %
// (docs/sensors.md).
inline constexpr double kMostDisagreement = 0.10;
inline constexpr Duration kLeastChecked = std::chrono::seconds(10);
// Integrated / counted over the time that both cover between the two; empty below kLeastChecked.
std::optional<double> check_ratio(const EnergyTotals& begin, const EnergyTotals& end);
bool is_agreement(double check_ratio);

// Feed samples in order of time; one that is older than the newest instant is dropped.
//
// By power: each reading is held until the next, but for `max_gap` at most; time beyond that is
// reported as dark. By the counter: its difference between two readings, shared out between them by
// the power (by time where power is missing), so that an instant between two readings is known when
// the second has come. A reading that has not moved is none (core/counter_watch.h). If the counter
// starts, stands still, goes back or jumps by more than a GPU can draw, power stands in.
class EnergyOdometer {
 public:
  explicit EnergyOdometer(Duration max_gap = std::chrono::seconds(2)) : max_gap_(max_gap) {}
  // From the next reading on.
  void set_max_gap(Duration max_gap) { max_gap_ = max_gap; }

  // An instant on the account. Until it is settled, `by_power` stands in for the counter since its
  // last reading.
  struct Mark {
    Instant time{};
    Joules integrated{};
    Duration dark{};
    std::optional<EnergyTotals> settled;
  };

  // True if the sample's reading of the counter settles all earlier marks: the counter has moved,
  // or stands still.
  bool add(const Sample& sample);
  // At `time`, or the newest instant when that is later. Settled at once where no counter has been
  // read, and where one was read just then.
  Mark mark(Instant time);
  // After the add() that says so: what is now known of a mark made before it.
  EnergyTotals settle(const Mark& mark) const;
  // The best that is known now.
  EnergyTotals totals(const Mark& mark) const;
  // Some sample had a counter or power.
  bool has_seen_any() const { return seen_any_; }

 private:
  void advance(Instant time);
  bool is_plausible(Joules counter, Duration span) const;
  void take_counter(Joules counter);
  void go_on_without_counter();
  EnergyTotals without_counter(const EnergyTotals& from, const Mark& mark) const;

  Duration max_gap_;
  std::optional<Instant> now_;
  std::optional<Watts> power_;  // the newest reading, held until
  Instant held_until_{};
  Joules integrated_{};
  Duration dark_{};
  CounterWatch watch_;
  std::optional<Joules> counter_;
  EnergyTotals before_{}, last_{};  // at the last reading of the counter but one, and at the last
  bool last_span_counted_ = false;  // between the two by the counter
  bool stands_still_ = false;       // between the two and since then, as far as known
  bool seen_any_ = false;
};

}  // namespace derate
