// Batch sizes as Zeus chooses them (NSDI'23, section 4; ml-energy/zeus v0.16.0): pruning rounds
// from the default downwards and upwards, then Gaussian Thompson sampling among the survivors.
#pragma once

#include "tune/sizes/size_policy.h"

namespace derate {

SizeChooser zeus_choose;
// Zeus knows one reason to stop, the bound.
SizeWatcher zeus_watch;

}  // namespace derate
