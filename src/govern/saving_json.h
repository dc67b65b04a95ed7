// Estimated savings of energy as JSON, for state.json and the accounts of commands, and as text for
// people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/saving.h"

namespace derate {

// How the estimate is made: kept with every figure, so that figures of two methods are never taken
// for one.
inline constexpr const char* kSavingMethod = "curves/1";

// Null where nothing was used. Shares are ratios; `low` and `high` hold 90 %.
nlohmann::ordered_json saving_json(const Saving& saving);

// The same of energies alone, by whichever method they were estimated.
nlohmann::ordered_json energy_saving_json(const Saving& saving, const std::string& method);

// "about 15 % (8.25 Wh of 55.2 Wh, 90 % sure between 12 and 18 %)". Empty where nothing was used.
std::string saving_text(const Saving& saving);
// Of a dry run: "between 7 and 40 % of 55.2 Wh: a governed run will tell" where the ends are far
// apart.
std::string would_save_text(const Saving& saving);
// "93 % of full (between 91 and 95)". Empty where no time went by.
std::string speed_text(const Saving& saving);

}  // namespace derate
