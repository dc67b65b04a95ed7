#include "tune/sizes/size_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/suggest.h"
#include "tune/sizes/tune_sizes.h"
#include "tune/sizes/zeus_sizes.h"

namespace derate {
namespace {

constexpr SizePolicyInfo kPolicies[] = {
    {"tune", "Derate's own: explores what is worth its charge, stops what shows to be expensive",
     tune_choose, tune_watch},
    {"zeus", "as published: two rounds of pruning, then Gaussian Thompson sampling", zeus_choose,
     zeus_watch},
};

}  // namespace

std::span<const SizePolicyInfo> size_policies() { return kPolicies; }

Result<const SizePolicyInfo*> find_size_policy(std::string_view name) {
  for (const SizePolicyInfo& policy : kPolicies)
    if (name == policy.name) return &policy;
  return Error{Errc::not_found,
               fmt::format("policy '{}'{}", name, choices(name, ": there are ", "tune, zeus"))};
}

std::optional<double> cheapest_run(std::span<const Trial> trials) {
  std::optional<double> cheapest;
  std::vector<double> paid;  // by recurrence: tries of several may be interleaved
  for (const Trial& trial : trials) {
    const auto run = static_cast<std::size_t>(trial.recurrence);
    if (run >= paid.size()) paid.resize(run + 1);
    paid[run] += trial.cost;
    if (trial.state == TrialState::reached)
      cheapest = std::min(paid[run], cheapest.value_or(paid[run]));
  }
  return cheapest;
}

}  // namespace derate
