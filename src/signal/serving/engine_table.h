// The engines that Derate reads metrics of: the names of their metrics by role, in one table.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/configured_engine.h"
#include "core/serving_state.h"

namespace derate {

// Empty: the engine does not show it.
struct MetricName {
  std::string_view name;        // without _bucket, if it is a histogram
  std::string_view older = {};  // read where `name` is not on the page
  // If not empty, the metric is of many things, and the series with this value of the label is it.
  std::string_view label = {}, value = {};
};

struct EngineNames {
  std::string_view engine;
  std::string_view model_label;  // empty: it does not name its model
  // Intervals between tokens, each observed. A histogram of means, one of a request, is none:
  // requests hide their slow tokens in it.
  MetricName between_tokens = {};
  MetricName first_token = {};
  MetricName running = {}, waiting = {};
  MetricName kv_share = {};
  MetricName prompt_tokens = {}, generated_tokens = {};
  // A count of engine steps. Its name is in full, with _count if it is of a histogram.
  MetricName steps = {};
  // Gauges: a series in which this label has a value is a part of one that has none.
  std::string_view part_label = {};
  // Series that differ in these labels alone report the same requests.
  std::span<const std::string_view> copy_labels = {};
  // `running` counts the requests that wait, too.
  bool running_has_waiting = false;
  // The source of the names: repository@commit, file.
  std::string_view source = {};

  // A latency promise needs a histogram of the intervals between tokens.
  bool promise_possible() const { return !between_tokens.name.empty(); }
};

// In the order in which they are preferred: engines, then what stands in front of them.
std::span<const EngineNames> engine_table();

// How series of one role become one value.
enum class RoleKind {
  histogram,  // added
  counter,    // added
  gauge,      // added, less parts and copies
  share,      // the largest; 0 to 1
};

struct EngineRole {
  std::string_view text;  // for people
  RoleKind kind;
  MetricName EngineNames::*name;
  // The field of the role: one of the two.
  std::optional<double> ServingState::*number = nullptr;
  std::optional<LatencyHistogram> ServingState::*histogram = nullptr;
};
std::span<const EngineRole> engine_roles();

// The names of an engine that is not in the table, as views into `configured`, which must outlive
// them.
EngineNames engine_names(const ConfiguredEngine& configured);

}  // namespace derate
