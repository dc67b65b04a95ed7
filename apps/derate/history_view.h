// The history as people and spreadsheets read it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api/history_requests.h"
#include "base/result.h"
#include "terminal/frame.h"

namespace derate::cli {

enum class HistoryWhat : std::uint8_t {
  power,
  clock,
  energy,
  utilisation,
  temperature,
  saving,
  performance,
};
const char* to_string(HistoryWhat what);
// Errors: invalid_argument naming what there is.
Result<HistoryWhat> parse_history_what(const std::string& name);

// The highest value that a GPU can have, by its UUID.
using HistoryLimits = std::map<std::string, double>;
// `gpus`: as status has them. Power limits in force, highest clocks; of energy that of
// `step_seconds` at the power limit; nothing of others.
HistoryLimits history_limits(const nlohmann::ordered_json& gpus, HistoryWhat what,
                             double step_seconds);

// One GPU as one chart, some below each other, many and tenants as a line each; what each came to
// next to it. No line is wider than the look; one GPU fits its height from 8 lines on. GPUs whose
// limits differ have a scale each, others one for all.
Frame history_frame(const HistoryAnswer& answer, HistoryWhat what, const Look& look,
                    const HistoryLimits& limits = {});

// How many points such a picture wants: of energy each column is a step.
std::int64_t history_points(HistoryWhat what, const Look& look);

// RFC 4180, a row a step of each series; an empty cell is not known.
std::string history_csv(const HistoryAnswer& answer);

}  // namespace derate::cli
