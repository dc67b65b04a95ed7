// Data types of the history: series, their points, seconds and decisions. A point is over an
// interval with how much of it is covered, so that a gap is a gap and sums add up, however coarse
// they have become.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/tenant_labels.h"

namespace derate {

// gpu: a board under one policy. tenant: who shares a board.
enum class HistoryKind : std::uint8_t { gpu, tenant };

// A second belongs to one series of its GPU alone: another policy is another series, so that what
// was saved by each adds up.
struct HistorySeriesKey {
  HistoryKind kind = HistoryKind::gpu;
  std::string gpu;      // UUID
  std::string policy;   // of a gpu series; empty: it was only observed
  std::string tenant;   // of a tenant series: its key
  TenantLabels labels;  // of a tenant series

  bool operator==(const HistorySeriesKey&) const = default;
  // By GPU, kind, policy and tenant.
  bool operator<(const HistorySeriesKey& other) const;
};

// How two points of a column become one of both intervals. In whatever order points are folded the
// outcome is the same.
enum class HistoryFold : std::uint8_t { sum, most, bits };
inline std::int64_t folded(HistoryFold how, std::int64_t a, std::int64_t b) {
  // A sum that no counter could reach wraps around, in whatever order it is made.
  if (how == HistoryFold::sum)
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  return how == HistoryFold::most ? std::max(a, b) : a | b;
}

struct HistoryColumn {
  const char* name;  // the unit last: "energy_mj"
  HistoryFold fold;
  bool of_gpu, of_tenant;
  const char* what;
};

// A mean is kept as a sum of value x milliseconds, and those milliseconds beside it.
enum class HistoryField : std::uint8_t {
  covered_ms,  // of which the energy is known; the rest of the interval is a gap
  energy_mj,
  energy_sd_mj,  // one standard deviation of a tenant's share
  saved_of_mj,   // energy of the time for which a saving is estimated (core/saving.h)
  saved_at_highest_mj,
  saved_sd_mj,
  power_most_mw,
  sm_clock_mhz_ms,
  sm_clock_ms,
  asked_clock_mhz_ms,  // while a lock of ours is in force
  asked_clock_ms,
  gpu_utilisation_permille_ms,
  gpu_utilisation_ms,
  memory_utilisation_permille_ms,
  memory_utilisation_ms,
  temperature_most_celsius,
  throttle_bits,            // throttle:: bits, those that were ever set
  performance_permille_ms,  // estimated, of the highest clock
  performance_ms,
  promise_permille_ms,
  promise_ms,
  broken_ms,  // estimated performance below the promise
  probing_ms,
  count_,
};
inline constexpr std::size_t kHistoryFields = static_cast<std::size_t>(HistoryField::count_);
// In the order of HistoryField.
std::span<const HistoryColumn> history_columns();

// Empty where nothing was read in the interval.
struct HistoryPoint {
  std::array<std::optional<std::int64_t>, kHistoryFields> values;

  std::optional<std::int64_t>& operator[](HistoryField field) {
    return values[static_cast<std::size_t>(field)];
  }
  const std::optional<std::int64_t>& operator[](HistoryField field) const {
    return values[static_cast<std::size_t>(field)];
  }
  // One point of both intervals.
  void fold(const HistoryPoint& more);
  // The mean of a field that is kept as two sums; empty where none was read.
  std::optional<double> mean(HistoryField sum, HistoryField time) const;

  bool operator==(const HistoryPoint&) const = default;
};

// All series of one second. `begin` is a whole second of UTC.
struct HistorySecond {
  struct Part {
    HistorySeriesKey key;
    HistoryPoint point;
    bool operator==(const Part&) const = default;
  };
  WallTime begin{};
  std::vector<Part> parts;
};

// How a clock was chosen, kept when it changes: what `derate why` tells of a second.
struct HistoryDecision {
  WallTime time{};
  std::string gpu;     // UUID
  std::string policy;  // empty: only observed
  std::string source;  // who assigned it: "configuration", "command", "unconfirmed", "run",
                       // "tuning"; or nobody
  std::string who;
  std::string rule;    // that had the last word: "none", "idle", "thermal", ...
  std::string reason;  // a sentence
  std::optional<double> asked_clock_mhz, sm_clock_mhz, set_power_limit_watts;
  std::optional<double> expected_performance_ratio, promised_performance_ratio;
  std::string bound;  // who bounds its clocks; empty: nobody

  bool operator==(const HistoryDecision&) const = default;
};

}  // namespace derate
