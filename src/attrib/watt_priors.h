// Prior means and standard deviations of a chip's watts, used until the first readings of the card.
#pragma once

#include <string_view>

#include "attrib/power_kalman_filter.h"
#include "attrib/split.h"

namespace derate {

// Of a chip that is not in the table: a wide belief around an HBM part's. What `board` tells goes
// before the table.
WattPrior watt_prior(const BoardFacts& board);

}  // namespace derate
