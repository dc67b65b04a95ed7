// Splits by one number of each tenant, as tools in use make them: nothing is learned. Formulas and
// sources: docs/attribute-methods.md.
#pragma once

#include <memory>

#include "attrib/split.h"

namespace derate {

// The same for everyone who holds a context.
std::unique_ptr<SplitMethod> make_equal_split(const BoardFacts& board);

// The multiprocessors held, idle or not, by everyone who holds a context (CEEMS).
std::unique_ptr<SplitMethod> make_slices_split(const BoardFacts& board);

// The multiprocessors held times their activity; a process's share of the SMs' time. Without
// either, the multiprocessors held.
std::unique_ptr<SplitMethod> make_sm_share_split(const BoardFacts& board);

// The graphics engine's activity in each instance, whatever its size (Kepler); SM activity where
// the engine's is missing; a process's share of the SMs' time. Without any, as make_equal_split().
std::unique_ptr<SplitMethod> make_activity_ratio_split(const BoardFacts& board);

}  // namespace derate
