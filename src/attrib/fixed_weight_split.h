// The common part of the methods to compare with: each is given the board's base and context power,
// keeps no state from tick to tick, and weighs one tenant at a time.
#pragma once

#include <functional>
#include <memory>

#include "attrib/split.h"

namespace derate {

// A tenant's watts, or its weight against the others: allocate_energy() scales them to the energy
// measured.
using TenantWeight = std::function<double(const TenantTick& tenant, const AttribTick& tick)>;

// Base and context power that the board's facts do not name are 0 W. A weight that is no positive
// number counts as 0, and so does the weight of a tenant with neither context nor activity, which
// is not asked for.
std::unique_ptr<SplitMethod> make_fixed_weight_split(const BoardFacts& board, TenantWeight weight);

}  // namespace derate
