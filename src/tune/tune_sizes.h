// Batch sizes as Derate chooses them: docs/tune-policies.md has the model, its constants and what
// they were chosen on.
#pragma once

#include "tune/size_policy.h"

namespace derate {

SizeChoice tune_choose(const SizeProblem& problem, std::span<const Trial> trials);
SizeVerdict tune_watch(const SizeProblem& problem, std::span<const Trial> trials,
                       std::size_t running, const SizeChoice& choice);

}  // namespace derate
