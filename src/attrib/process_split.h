// Processes that share a GPU without MIG: whose turn it was (time_shares.h) and what each one's
// kernels draw then (turn_filter.h), found out together: the samples of a second say little of who
// ran, its power says more once the watts are known, and these are learned of both.
#pragma once

#include <memory>

#include "attrib/split.h"

namespace derate {

// Ticks without any process belong to it, too: there base and context are told apart. MIG instances
// get nothing.
std::unique_ptr<SplitMethod> make_process_split(const BoardFacts& board);

}  // namespace derate
