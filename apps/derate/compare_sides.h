// The two commands that `derate compare` runs in turn, from its options and words.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "command_options.h"

namespace derate::cli {

struct CompareSides {
  std::vector<std::string> a, b;              // to run
  std::vector<std::string> shown_a, shown_b;  // as people write them
  bool governs = false;  // `derate run` governs each side: it needs the caller's rights
};

// A and B of the words before and after --vs; or, with --policies or --limits, one command under
// `program` run, once under each of two. `gpus`: that it governs; empty: those of its environment.
// Errors: invalid_argument naming the words; those of choose_policy() for a policy.
Result<CompareSides> compare_sides(const CompareOptions& options, const std::string& program,
                                   const std::string& gpus);

}  // namespace derate::cli
