#include "attrib/power_capped_shares.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>

#include "model/shapley.h"

namespace derate {
namespace {

constexpr std::size_t kMostPlayers = 10;  // 1024 sets

// Draws of every set of `wants`, by the bits of its members.
std::vector<double> draws(const std::vector<double>& wants, double limit) {
  std::vector<double> sums(std::size_t{1} << wants.size(), 0);
  for (std::size_t set = 1; set < sums.size(); ++set) {
    const auto last = static_cast<std::size_t>(std::countr_zero(set));
    sums[set] = sums[set & (set - 1)] + wants[last];
  }
  for (double& sum : sums) sum = std::min(sum, limit);
  return sums;
}

}  // namespace

std::vector<double> shares_of_a_limit(const std::vector<double>& wants, double limit) {
  const double all = std::accumulate(wants.begin(), wants.end(), 0.0);
  if (all <= limit || all <= 0) return wants;
  std::vector<double> players;
  for (const double want : wants)
    if (want > 0) players.push_back(want);
  std::vector<double> out = wants;
  if (players.size() > kMostPlayers) {
    for (double& want : out) want *= limit / all;
    return out;
  }
  const std::vector<double> drawn = draws(players, limit);
  const std::vector<double> values =
      shapley(players.size(), [&](unsigned set) { return drawn[set]; });
  std::size_t next = 0;
  for (double& want : out)
    if (want > 0) want = values[next++];
  return out;
}

}  // namespace derate
