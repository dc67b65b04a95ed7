// An engine's metrics page as a ServingState: which engine it is, and its series added up.
//
// Several engines on a page: the one with intervals between tokens is read, else the one with the
// most roles, else the first row of the table. Several indexes or ranks of a model: counters,
// histograms of equal edges and requests are added; of shares of the KV cache the largest counts.
// Several models: an error, unless one is named; series without a model's name then do not count.
//
// NaN: the role is missing; in a histogram it is an error. A value below 0 or above 2^53: an error.
// A share of the KV cache above 1: 1 up to 1.05, since blocks that are shared count twice; above
// that an error, since it is probably a percentage. Buckets in another order are sorted: a relay
// may write le="10.0" before le="2.5". No +Inf bucket, no _sum, an edge twice, counts that fall,
// unequal edges: an error. A histogram's _count is not read: its +Inf bucket is it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/serving_state.h"
#include "signal/serving/engine_table.h"

namespace derate {

struct EngineReading {
  std::string engine;             // as the table has it
  bool promise_possible = false;  // by the table: the histogram appears with the first request
  std::string model;              // empty: the page does not name it
  ServingState state;             // `time` and `run` are the caller's to set
  std::vector<std::string_view> missing;  // roles, as engine_roles() has them
};

// `wanted`: the engine whose names are read; null: recognised by the names that are on the page.
// `model`: whose series are read; empty: there may be one.
// Errors: bad_data, naming the line, the value and what is allowed; not_found: no such engine or
// model on the page; invalid_argument: several models and none named. The last two list what is
// there.
Result<EngineReading> read_engine(std::string_view text, const EngineNames* wanted,
                                  std::string_view model);

}  // namespace derate
