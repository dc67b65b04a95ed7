// A card's reading as JSON, for /v1/status and the state file (docs/json.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/sample.h"

namespace derate {

// A field that is not known is left out; null: nothing is known. `activity`: of late, for the rates
// of the link. `now`: for the age of the reading.
nlohmann::ordered_json card_json(const CardReading& card, const Activity& activity, Instant now);

}  // namespace derate
