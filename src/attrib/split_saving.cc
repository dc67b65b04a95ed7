#include "attrib/split_saving.h"

#include <algorithm>
#include <cstdlib>

namespace derate {
namespace {

std::vector<double> energies(const std::optional<Split>& split) {
  std::vector<double> out{0};
  if (!split) return out;
  out[0] = static_cast<double>(split->unallocated_mj);
  for (const TenantEnergy& tenant : split->tenants)
    out.push_back(static_cast<double>(tenant.total_mj()));
  return out;
}

}  // namespace

SavingSplit split_saving(const SavingSums& whole, const std::optional<Split>& split) {
  const std::vector<double> weights = energies(split);
  std::vector<SavingSums> parts(weights.size());
  for (const auto field :
       {&SavingSums::energy_mj, &SavingSums::at_highest_mj, &SavingSums::sd_mj}) {
    const std::int64_t total = whole.*field;
    // What is taken back is divided as what is given.
    const std::vector<std::int64_t> amounts = apportion(std::abs(total), weights);
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].*field = total < 0 ? -amounts[i] : amounts[i];
  }
  return {parts.front(), {parts.begin() + 1, parts.end()}};
}

}  // namespace derate
