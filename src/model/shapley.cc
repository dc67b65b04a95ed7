#include "model/shapley.h"

#include <bit>

namespace derate {

// A coalition of s players is met with the weight s! (n - s - 1)! / n!.
std::vector<double> shapley(std::size_t count, const std::function<double(unsigned mask)>& value) {
  const unsigned all = (1U << count) - 1;
  std::vector<double> values(all + 1);
  for (unsigned mask = 1; mask <= all; ++mask) values[mask] = value(mask);
  std::vector<double> weight(count, 1.0 / static_cast<double>(count));
  for (std::size_t s = 1; s < count; ++s)
    weight[s] = weight[s - 1] * static_cast<double>(s) / static_cast<double>(count - s);
  std::vector<double> out(count, 0);
  for (unsigned mask = 0; mask < all; ++mask)
    for (std::size_t i = 0; i < count; ++i)
      if (const unsigned with = mask | (1U << i); with != mask)
        out[i] +=
            weight[static_cast<std::size_t>(std::popcount(mask))] * (values[with] - values[mask]);
  return out;
}

}  // namespace derate
