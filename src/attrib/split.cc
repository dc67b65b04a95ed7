#include "attrib/split.h"

#include <fmt/format.h>

#include "attrib/baseline_splits.h"
#include "attrib/online_split.h"
#include "base/suggest.h"

namespace derate {
namespace {

constexpr SplitMethodInfo kMethods[] = {
    {"online", "by what each tenant's units cost, learned from the board's power while it runs",
     false, make_online_split},
    {"equal", "the same for everyone who holds a context", false, make_equal_split},
    {"slices", "by the multiprocessors held, idle or not", false, make_slices_split},
    {"sm-share", "by the multiprocessors held times their activity", false, make_sm_share_split},
    {"activity-ratio", "by the activity of each instance, whatever its size", false,
     make_activity_ratio_split},
    {"offline-linear", "by one linear model of the whole GPU, made beforehand", true, nullptr},
    {"offline-trees", "by boosted trees of the whole GPU, made beforehand", true, nullptr},
    {"workload-models", "by a linear model a workload, made beforehand on an instance", true,
     nullptr},
    {"exact-curve", "by the true watts of each tenant: what no tool can know", true, nullptr},
};

}  // namespace

std::span<const SplitMethodInfo> split_methods() { return kMethods; }

Result<const SplitMethodInfo*> find_split_method(std::string_view name) {
  std::string known;
  for (const SplitMethodInfo& method : kMethods) {
    if (name == method.name) return &method;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", method.name);
  }
  return Error{Errc::not_found,
               fmt::format("no method '{}'{}", name, choices(name, ": there are ", known))};
}

}  // namespace derate
