// Batch sizes as Zeus chooses them (NSDI'23, section 4; ml-energy/zeus v0.16.0): pruning rounds
// from the default downwards and upwards, then Gaussian Thompson sampling among the survivors.
#pragma once

#include "tune/size_policy.h"

namespace derate {

SizeChoice zeus_choose(const SizeProblem& problem, std::span<const Trial> trials);
// Zeus knows one reason to stop, the bound.
SizeVerdict zeus_watch(const SizeProblem& problem, std::span<const Trial> trials,
                       std::size_t running, const SizeChoice& choice);

}  // namespace derate
