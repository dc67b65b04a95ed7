// Requests and answers of the history, savings, events and why as plain structs: series are columns
// of numbers of one length, null for what is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/saved_view.h"
#include "base/field_info.h"

namespace derate {

// --- requests ------------------------------------------------------------------------------------

// Times are texts of parse_when() (base/when.h), in the daemon's own zone where they do not say.
struct HistoryRead {
  static constexpr const char* kOperation = "history";
  std::string from = "now-6h", to = "now";
  std::string gpus;          // as everywhere; empty: all
  std::string kind = "gpu";  // gpu, tenant or all
  std::int64_t points = 1000;
  bool operator==(const HistoryRead&) const = default;
};
struct SavingsRead {
  static constexpr const char* kOperation = "savings";
  std::string by = "gpu";  // gpu, job, user or policy
  std::string from = "month", to = "now";
  bool operator==(const SavingsRead&) const = default;
};
struct BillRead {
  static constexpr const char* kOperation = "bill";
  std::string by = "user";  // user, job, pod, container, instance, process, gpu or day
  std::string from = "month", to = "now";
  std::string gpus;  // as everywhere; empty: all
  bool operator==(const BillRead&) const = default;
};
struct EventsRead {
  static constexpr const char* kOperation = "events";
  std::string from, to;  // empty: from the first, to the last
  std::string gpu;       // one; empty: all, and the service
  std::int64_t after = 0;
  std::int64_t most = 1000;
  bool fold = false;
  bool operator==(const EventsRead&) const = default;
};
struct WhyRead {
  static constexpr const char* kOperation = "why";
  std::string gpu = "0";
  std::string at = "now";
  std::int64_t changes = 10;
  bool operator==(const WhyRead&) const = default;
};

// --- answers -------------------------------------------------------------------------------------

using NumberColumn = std::optional<std::vector<std::optional<double>>>;
using IntegerColumn = std::optional<std::vector<std::optional<std::int64_t>>>;

// One GPU under one policy, or one of its tenants. A column that is empty has nothing at all.
struct HistorySeriesView {
  std::string gpu;  // UUID
  std::optional<int> index;
  std::string kind;                   // "gpu" or "tenant"
  std::optional<std::string> policy;  // of a gpu series; empty text: it was only observed
  std::string tenant;                 // its key
  std::optional<std::int64_t> pid;
  std::string process, user, job, container, name_space, pod, instance;
  std::vector<std::int64_t> begin_unix_seconds;
  std::vector<double> covered_ratio;
  NumberColumn energy_joules, energy_sd_joules, power_watts, power_most_watts;
  NumberColumn sm_clock_mhz, asked_clock_mhz, gpu_utilisation_ratio, memory_utilisation_ratio;
  NumberColumn temperature_most_celsius;
  IntegerColumn throttle_bits;
  NumberColumn saved_of_joules, saved_joules, saved_low_joules, saved_high_joules;
  NumberColumn performance_ratio, promised_performance_ratio, broken_seconds, probing_seconds;
  bool operator==(const HistorySeriesView&) const = default;
};
// Points that went before they were old, for the sake of the size of the file.
struct HistoryCutView {
  std::string kind;
  double step_seconds = 0;  // of what is dropped
  std::int64_t from_unix_seconds = 0;
  bool operator==(const HistoryCutView&) const = default;
};
struct HistoryAnswer {
  std::int64_t from_unix_seconds = 0, to_unix_seconds = 0;
  double step_seconds = 0;
  std::optional<std::int64_t> first_unix_seconds, last_unix_seconds;  // of all that is kept
  std::vector<HistorySeriesView> series;
  std::vector<HistoryCutView> cuts;
  std::int64_t broken_rows = 0;  // of the file, left out: gaps
  bool operator==(const HistoryAnswer&) const = default;
};

// What one of them used and saved, by hour of UTC. Energies are whole millijoules.
struct SavingsLineView {
  std::string key;
  std::optional<int> index;  // of a GPU
  std::vector<std::int64_t> hour_unix_seconds;
  std::vector<double> covered_seconds, energy_joules;
  std::vector<double> saved_of_joules, saved_at_highest_joules, saved_sd_joules;
  SavedView sum;  // of these hours
  bool operator==(const SavingsLineView&) const = default;
};
struct SavingsAnswer {
  std::string by, method;
  std::int64_t from_unix_seconds = 0, to_unix_seconds = 0;
  std::optional<std::int64_t> first_unix_seconds, last_unix_seconds;
  std::int64_t gpus = 0;
  double covered_seconds = 0, possible_seconds = 0;
  std::optional<double> known_ratio;  // the one of the other; empty: no GPU is known
  SavedView total;
  std::vector<SavingsLineView> lines;
  bool operator==(const SavingsAnswer&) const = default;
};

// The saving by one method's estimate. Energies are whole millijoules.
struct BillSavingView {
  std::string method;
  double energy_joules = 0, at_highest_joules = 0, sd_joules = 0;
  bool operator==(const BillSavingView&) const = default;
};
struct BillLineView {
  std::string name;          // empty: tenants without such a label
  std::optional<int> index;  // of a GPU
  double base_joules = 0, context_joules = 0, dynamic_joules = 0;
  double sigma_joules = 0, unsure_joules = 0, prior_joules = 0, seconds = 0;
  std::vector<BillSavingView> savings;
  bool operator==(const BillLineView&) const = default;
};
// Of a time, as exact as what is kept, so much is not known.
struct BillLossView {
  std::int64_t from_unix_seconds = 0, to_unix_seconds = 0;
  double lost_seconds = 0;  // summed over GPUs
  bool operator==(const BillLossView&) const = default;
};
struct BillAnswer {
  std::string by;
  double from_unix_seconds = 0, to_unix_seconds = 0;
  std::optional<std::int64_t> first_unix_seconds, last_unix_seconds;
  std::vector<BillLineView> lines;
  double board_joules = 0, unallocated_joules = 0, by_power_joules = 0;
  double seconds = 0, lost_seconds = 0;
  std::vector<BillSavingView> unallocated_savings;
  std::vector<BillLossView> losses;
  std::int64_t broken_rows = 0;
  bool operator==(const BillAnswer&) const = default;
};

struct EventView {
  std::int64_t id = 0;
  double time_unix_seconds = 0;
  std::string event, severity;
  std::string gpu;
  std::optional<int> gpu_index;
  std::string message;
  NamedTexts fields;
  // Of several that are folded into one.
  std::int64_t count = 1;
  std::optional<double> first_unix_seconds;
  std::vector<std::int64_t> gpu_indices;
  bool operator==(const EventView&) const = default;
};
struct EventsAnswer {
  std::vector<EventView> events;
  // Of all that happened in the time.
  std::int64_t total = 0, warnings = 0, errors = 0;
  bool operator==(const EventsAnswer&) const = default;
};

struct DecisionView {
  double time_unix_seconds = 0;
  std::string policy, source, who, rule, reason, bound;
  std::optional<double> asked_clock_mhz, sm_clock_mhz, set_power_limit_watts;
  std::optional<double> expected_performance_ratio, promised_performance_ratio;
  bool operator==(const DecisionView&) const = default;
};
// What was read in the second that is asked for.
struct MeasuredView {
  std::int64_t begin_unix_seconds = 0;
  double seconds = 0;
  std::optional<double> power_watts, sm_clock_mhz, asked_clock_mhz;
  std::optional<double> gpu_utilisation_ratio, temperature_most_celsius;
  std::optional<double> performance_ratio, promised_performance_ratio;
  std::optional<std::int64_t> throttle_bits;
  bool operator==(const MeasuredView&) const = default;
};
struct WhyAnswer {
  std::string gpu;
  std::optional<int> index;
  double at_unix_seconds = 0;
  std::optional<DecisionView> decision;
  std::optional<MeasuredView> measured;
  std::vector<DecisionView> changes;
  bool operator==(const WhyAnswer&) const = default;
};

}  // namespace derate
