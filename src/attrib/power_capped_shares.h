// Splits a power that is held down by the power limit.
#pragma once

#include <vector>

namespace derate {

// The Shapley values of the game in which a set of tenants draws the sum of what they want, at most
// `limit`: together min(sum, limit). Beyond 10 tenants with a want, in proportion to the wants,
// which is near it. W; none negative.
std::vector<double> shares_of_a_limit(const std::vector<double>& wants, double limit);

}  // namespace derate
