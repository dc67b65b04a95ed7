// Energy that GPUs have used and saved, as every answer and command has it: one definition of the
// saved share (core/saving.h, saved_share).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "core/saving.h"

namespace derate {

struct SavedView {
  std::optional<std::int64_t> since_unix_seconds;  // empty: the answer has its period
  double energy_joules = 0;                        // all that was used
  double governed_joules = 0;                      // of it, while a saving was estimated
  std::optional<double> saved_joules, saved_low_joules, saved_high_joules;
  std::optional<double> energy_saving_ratio, energy_saving_low_ratio, energy_saving_high_ratio;
  std::optional<double> governed_saving_ratio;  // the saved share of the governed part alone
  bool operator==(const SavedView&) const = default;
};

// `saving`: empty where none was estimated.
SavedView saved_view(Joules used, const std::optional<Saving>& saving);

nlohmann::ordered_json saved_json(const SavedView& saved);

}  // namespace derate
