// Source of attribution's ticks, made of successive readings of a GPU's tenancy: energy steps,
// cleaned counters and the tenants present. No sensor reading makes an energy negative, and lost
// energy is always reported.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attrib/samples/paced_counter.h"
#include "attrib/tick.h"
#include "core/counter_watch.h"
#include "core/tenancy.h"

namespace derate {

// Who the tenants of a reading are, in its order: each key the same for life and never another's.
// An empty key: nobody knows; its energy is borne by those who are known, or by nobody.
struct TenantKeys {
  std::vector<std::string> instances, processes;

  bool operator==(const TenantKeys&) const = default;
};

// What was not as usual.
enum class TickIssue : std::uint8_t {
  counter_missing,  // there was an energy counter, and now there is none
  counter_began,    // its first reading, or the first after it was missing
  counter_back,     // it went back: the driver was loaded anew, or it wrapped
  counter_jump,     // it went further than a board can draw
  counter_still,    // the counter did not move for seconds: power stands in
  counter_differs,  // the counter and the power readings differ by more than their errors
  power_missing,    // no counter, and no power either
  long_gap,         // no counter, and too long without a reading to integrate the power
  by_power,         // no counter: power times time
  clamped,          // a share above 100 % was taken for 100 %
  dropped,          // a number that cannot be was left out
  unnamed,          // a tenant without a key was left out
  named_twice,      // two tenants of one key: the first counts
  tenant_ended,     // one of the reading before is gone: its last part is borne by the others
  time_back,        // a reading that is not later than the one before: left out
  unsampled,        // the GPU works, and the driver lists no samples: the split is not known
};
inline constexpr std::size_t kTickIssues = 16;
const char* to_string(TickIssue issue);

using IssueCounts = std::array<std::uint64_t, kTickIssues>;

struct SourcedTick {
  AttribTick tick;
  IssueCounts issues{};  // in this tick
  // The energy counter that this and all earlier ticks add up to; empty: this one's energy is not
  // the counter's.
  std::optional<std::int64_t> counter_mj;
  // The issues in words, the ones that cost energy first; empty: all as usual.
  std::string reason() const;
};

// What was seen of a board's clock over some readings.
struct ClockSummary {
  int readings = 0;
  int clocks = 0;        // readings that had a clock
  double clock_mhz = 0;  // what those add up to
  int capped = 0;        // readings under the power limit
  int powers = 0;        // readings that had a power
  double power_w = 0;    // what those add up to

  void add(const Sample& board);
  void add(const ClockSummary& more);

  bool operator==(const ClockSummary&) const = default;
};

class TickSource {
 public:
  // Without a counter: readings further apart are not bridged by their power.
  explicit TickSource(Duration max_gap = std::chrono::seconds(10)) : max_gap_(max_gap) {}

  // A reading of the board between two of its tenancy: clocks change within a tick, under a power
  // limit most of all.
  void watch(const Sample& board) { watched_.add(board); }
  void watch(const ClockSummary& readings) { watched_.add(readings); }

  // The tick from the reading before to this one. A reading that was missed makes a longer tick.
  // Empty for the first, which only begins, and for one that is not later than the one before.
  std::optional<SourcedTick> next(const Tenancy& now, const TenantKeys& keys);

  // Of all ticks so far, and of readings that made none.
  const IssueCounts& issues() const { return all_; }

 private:
  // Power times time in whole mJ, from the last known power reading.
  struct Integral {
    std::optional<Watts> power;
    double remainder_mj = 0;  // less than 1 mJ
  };
  // The energy counter, read each tick.
  struct Counter {
    bool seen = false;               // any reading so far
    std::optional<std::int64_t> mj;  // the newest reading to measure from
    CounterWatch watch;
    std::int64_t ahead_mj = 0;  // counted by power, to be taken off the next step
    // Energy by power since the counter last moved, the time, and the part that no tick has
    // received. Empty: power was missing.
    std::optional<double> unmoved_mj = 0;
    Duration unmoved{};
    double unpaid_mj = 0;
    double most_ahead_mj = 0;  // energy by power while a counter may stand still
    // The current interval in which the counter is compared with the power.
    double checked_mj = 0, checked_power_mj = 0;
    Duration checked{};
    bool differs = false;
    std::optional<Instant> read;  // the newest reading
    PacedCounter paced;
  };
  struct Readings {
    std::optional<std::int64_t> counter_mj;
    bool old = false;                // it is that of a reading before: it was not due
    std::optional<double> power_mj;  // power times time since the reading before
    Instant time{};
    Duration length{};
  };
  std::optional<std::int64_t> step(const Readings& now, IssueCounts& issues);
  std::optional<std::int64_t> counted(const Readings& now, IssueCounts& issues);
  std::int64_t unmoved(const Readings& now, IssueCounts& issues);
  std::int64_t not_due(const Readings& now);
  std::optional<std::int64_t> stood_in(const Readings& now, IssueCounts& issues);
  void hold_power(const Readings& now);
  void forget_step();
  std::optional<double> integrate(const Sample& board, Duration length, IssueCounts& issues);
  void compare(const Readings& now, std::int64_t counted_mj, IssueCounts& issues);
  void count_ended(const std::vector<TenantTick>& tenants, IssueCounts& issues);

  Duration max_gap_;
  std::optional<Instant> last_;
  Counter counter_;
  Integral integral_;
  ClockSummary watched_;  // since the last tick
  bool has_utilisation_ = false;
  std::vector<std::string> keys_;  // of the reading before
  IssueCounts all_{};
};

}  // namespace derate
