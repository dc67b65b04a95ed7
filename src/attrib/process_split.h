// Power split among processes that share a GPU without MIG: each one's share of the time
// (time_shares.h) and the watts of its kernels (turn_filter.h), estimated together. The samples of
// a second say little of which process ran, its power says more once the watts are known, and these
// are learned of both.
#pragma once

#include <memory>

#include "attrib/split.h"

namespace derate {

// Ticks without any process belong to it, too: there base and context are told apart. MIG instances
// get nothing.
std::unique_ptr<SplitMethod> make_process_split(const BoardFacts& board);

}  // namespace derate
