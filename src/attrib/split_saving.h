// Division of a GPU's saving among its tenants, in proportion to the energy that each of them used.
#pragma once

#include <optional>
#include <vector>

#include "attrib/allocate_energy.h"
#include "core/saving.h"

namespace derate {

struct SavingSplit {
  SavingSums unallocated;
  std::vector<SavingSums> tenants;  // in the order of the split's
};

// Unallocated and tenants add up to `whole` exactly; each has a part as large as its part of the
// energy of that time. Without a split, or where no energy was used, all is unallocated.
SavingSplit split_saving(const SavingSums& whole, const std::optional<Split>& split);

}  // namespace derate
