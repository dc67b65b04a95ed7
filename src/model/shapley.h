// Shapley values: each player's part of a value that several players make together. It is the mean,
// over all orders of arrival, of what the player adds to those before it (L. S. Shapley, A Value
// for n-Person Games, 1953).
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace derate {

// Of `count` players, 1 to 16; value(mask) is what the players of the set bits make, 0 for none.
// The results add up to value(all). 2^count values are asked for.
std::vector<double> shapley(std::size_t count, const std::function<double(unsigned mask)>& value);

}  // namespace derate
