// Applications of an experiment that a policy's priors were made with: on them its promise is
// easier to keep than on work that nobody has measured before.
#pragma once

#include <string>
#include <vector>

#include "lab/session.h"

namespace derate {

// Those of `apps` whose name, letters of any case, is a row of the priors that the policy uses on
// the chip; of a pair ("GeMM>FFT", "GeMM->FFT") the name of either part. With leave_out an
// application by itself does not count, since the policy leaves it out while it runs; parts of
// pairs do. Mixes do not count: their names are no applications'. Empty: the policy has no priors.
std::vector<std::string> known_apps(const PolicyChoice& policy, const std::string& chip,
                                    const std::vector<std::string>& apps);

}  // namespace derate
