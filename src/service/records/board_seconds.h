// The seconds of one board for the history, from its records: a second of UTC is a point, once its
// energy is known.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/saving.h"
#include "govern/fleet/record_sink.h"
#include "store/history/history.h"
#include "telemetry/energy_odometer.h"

namespace derate {

// A series' point of the second that begins then. The sampler adds the GPU to its key.
struct SecondPart {
  WallTime begin{};
  HistorySeriesKey key;
  HistoryPoint point;
};

// Energy is cut from one odometer: the seconds add up to what it says. Where the counter covers a
// second it is known when the counter is read the next time. Everything else is held from a reading
// to the next, for `max_gap` at most. A stretch without readings that is longer than kLongestGap
// stays a gap, whatever the counter says afterwards: nobody knows when in it the energy was used.
class BoardSeconds {
 public:
  static constexpr Duration kLongestGap = std::chrono::minutes(1);
  // A clock on the wall that goes on by so much more or less than the other was set.
  static constexpr Duration kWasSet = std::chrono::milliseconds(100);

  // A reading of the counter that comes no sooner than `patience` after a second has ended is not
  // waited for: power stands in.
  void rules(Duration max_gap, Duration patience);
  // The next record. `to_wall`: what added to its time is the time on the wall now.
  void take(const GpuRecord& each, Duration to_wall, std::vector<SecondPart>& out);
  // What is there of seconds that are not over, as it stands; what comes next begins anew.
  void cut(std::vector<SecondPart>& out);
  // A second has ended with the last record, and waits for the counter.
  bool waits_for_counter() const { return waits_; }
  // By the readings of power, of a second that is lately over or under way; empty: not known.
  std::optional<Watts> mean_power(WallTime second) const;

 private:
  static constexpr std::size_t kMeans = 6;
  // What a record says that holds until the next.
  struct Held {
    Instant time{};
    std::array<std::optional<double>, kMeans> means;
    std::optional<double> watts;
    bool broken = false, probing = false;
  };
  struct Sums {
    std::array<double, kMeans> value_ns{}, time_ns{};
    double watts_ns = 0, power_ns = 0, broken_ns = 0, probing_ns = 0;
    bool judged = false, governed = false;  // broken and probing are known
    HistoryPoint most;                      // what is no sum over time
  };
  struct Open {
    WallTime begin{};
    Instant from{};
    std::string policy;
    Sums sums;
  };
  struct Ended {
    WallTime begin{};
    std::string policy;
    HistoryPoint point;
    Duration length{};
    EnergyOdometer::Mark mark;
    std::optional<EnergyTotals> totals;  // empty: not settled
  };

  static Held held_of(const GpuRecord& each);
  static HistoryPoint point_of(const Sums& sums);
  void begin(Instant from, const std::string& policy);
  Instant end_of_open() const;
  void hold_until(Instant to);
  void close(Instant at);
  void advance(Instant to, const std::string& policy);
  void note(const Sample& sample);
  void put_savings(Ended& ended);
  void drain(std::vector<SecondPart>& out);

  Duration max_gap_ = std::chrono::seconds(2), patience_ = std::chrono::seconds(2);
  EnergyOdometer odometer_;
  Duration to_wall_{};
  std::optional<Held> held_;
  std::optional<Open> open_;
  Instant began_{};    // the odometer's first instant
  Instant resumed_{};  // since when readings come without a gap
  std::deque<Ended> ended_;
  std::vector<SecondPart> apart_;                   // savings of policies that are gone
  std::int64_t told_mj_ = 0, told_covered_ms_ = 0;  // of the odometer
  std::map<std::string, Saving> saved_;             // by policy, and not told yet
  std::deque<std::pair<WallTime, Watts>> powers_;   // of the last seconds
  bool waits_ = false;
};

}  // namespace derate
