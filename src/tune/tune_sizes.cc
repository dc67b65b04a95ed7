#include "tune/tune_sizes.h"

#include "tune/zeus_sizes.h"

namespace derate {

SizeChoice tune_choose(const SizeProblem& problem, std::span<const Trial> trials) {
  return zeus_choose(problem, trials);
}

SizeVerdict tune_watch(const SizeProblem& problem, std::span<const Trial> trials,
                       std::size_t running, const SizeChoice& choice) {
  return zeus_watch(problem, trials, running, choice);
}

}  // namespace derate
