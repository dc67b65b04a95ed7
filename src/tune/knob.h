// Search for the best setting of a knob of a running job, its power limit or clock: readings at
// settings, the price of each (energy, time or cost), and the setting to measure next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

// At one setting, over the same kind of work.
struct KnobReading {
  double setting = 0;  // W of each GPU, or MHz
  double rate = 0;     // work per second, in the job's own unit; above 0
  Watts power{};       // mean, of all of the job's GPUs

  bool operator==(const KnobReading&) const = default;
};

// What a job wants of its energy and time. Cost is Zeus's: eta * energy + (1 - eta) * MAXPOWER *
// time (NSDI'23, section 3), in joules.
struct Selector {
  enum class Kind : std::uint8_t { energy, time, cost, max_slowdown };
  Kind kind = Kind::cost;
  double eta = 0.5;        // of cost: 0 counts time only, 1 energy only
  double slowdown = 1.05;  // of max_slowdown: the time that it may take, over that at the highest

  bool operator==(const Selector&) const = default;
};

// "energy", "time", "cost" or "cost:0.7", "max-slowdown" or "max-slowdown:1.1".
// Errors: invalid_argument, with what is allowed.
Result<Selector> parse_selector(std::string_view text);
std::string to_string(const Selector& selector);

// Zeus's cost of work that took so much.
constexpr Joules cost_of(double eta, Watts max_power, Joules energy, Duration time) {
  return eta * energy + (1 - eta) * (max_power * time);
}

// Of a unit of work at a reading: J, or s where only time counts. Lower is better. `max_power` is
// the highest limit of all of the job's GPUs together.
double price(const Selector& selector, Watts max_power, const KnobReading& reading);

// The best of the readings, of which the last, at the highest setting, is the reference. With
// max_slowdown it is the least energy among those that are quick enough: the reference is one of
// them, so that a setting that costs energy is never taken.
// `readings` ascend by setting and are not empty.
std::size_t best_reading(const Selector& selector, Watts max_power,
                         std::span<const KnobReading> readings);

struct KnobSearchOptions {
  std::vector<double> settings;  // ascending, not empty
  Selector selector;
  Watts max_power{};
  // Where the settings are power limits: of so many GPUs, each with its own. Empty: clocks.
  std::optional<int> limited_gpus = {};
  // Where the best may lie: what was best for similar work. Empty: kUsualStart.
  std::optional<double> start = {};
  // Settings closer together than this are as good as one. 0: every setting is told apart.
  double resolution = 0;
  // Prices as near to each other as this, relative, are one: more where readings are noisy.
  double tie = 0.01;
  // A setting that takes this much more time is never the best, and nothing is measured below it.
  double guard = 1.5;
};

// Finds the best setting of a price with one valley in few readings: the highest setting first (the
// reference), then the start, then what lies beside the best until its neighbours are worse. Where
// settings make no difference, as limits above what the work draws, the valley goes on below.
class KnobSearch {
 public:
  // Of the highest clock or power limit. Assumed: a GPU's power falls faster than its speed until
  // about there. A limit above what the work draws makes no difference: that much at most.
  static constexpr double kUsualStart = 0.7;
  // A limit of so many times the mean power does not slow the work. Assumed.
  static constexpr double kFree = 1.25;

  explicit KnobSearch(KnobSearchOptions options);

  // The setting to measure now; empty: done.
  std::optional<double> next() const;
  // A reading at a setting of the list, in any order; one that was there is replaced.
  void add(const KnobReading& reading);
  // Nothing is measured at `setting` and below: it has shown to be too slow.
  void rule_out(double setting);

  bool done() const { return !next(); }
  // After the first reading.
  const KnobReading& best() const;
  const KnobReading& reference() const { return readings_.back(); }
  // Ascending by setting.
  std::span<const KnobReading> readings() const { return readings_; }
  const KnobSearchOptions& options() const { return options_; }

 private:
  bool measured(std::size_t at) const;
  std::size_t index_of(double setting) const;
  std::span<const KnobReading> allowed() const;
  double start() const;
  double ripple() const;
  std::optional<std::size_t> beside(std::size_t middle, int step) const;
  std::optional<std::size_t> among(std::span<const KnobReading> tied) const;

  KnobSearchOptions options_;
  std::vector<KnobReading> readings_;
  std::size_t lowest_ = 0;  // that is quick enough, as far as known
};

}  // namespace derate
