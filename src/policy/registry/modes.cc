#include "policy/registry/modes.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/suggest.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

// `balanced` is the default policy at its default promise; why the others, docs/policies/README.md.
constexpr const char* kBalanced[] = {"delta=0.10"};
constexpr Mode kModes[] = {
    {"max", "full performance, whatever it draws", "max-freq", {}},
    {"balanced", "the least energy at 90 % of the performance", "assure", kBalanced},
    {"saving", "the most work for a joule, with no promise", "efficient-fix", {}},
};

}  // namespace

std::span<const Mode> modes() { return kModes; }

const Mode* find_mode(std::string_view name) {
  for (const Mode& mode : kModes)
    if (name == mode.name) return &mode;
  return nullptr;
}

Result<PolicyPick> pick_policy(std::string_view name) {
  if (const Mode* mode = find_mode(name)) {
    PolicyPick pick;
    pick.info = TRY(find_policy(mode->policy));
    pick.assignments.assign(mode->assignments.begin(), mode->assignments.end());
    return pick;
  }
  auto info = find_policy(name);
  if (info.ok()) return PolicyPick{*info, {}};
  std::vector<std::string> known;
  for (const PolicyInfo& each : policies()) known.emplace_back(each.name);
  for (const Mode& mode : kModes) known.emplace_back(mode.name);
  if (const auto near = nearest_word(name, known))
    return Error{Errc::not_found, fmt::format("no policy '{}'; did you mean '{}'?", name, *near)};
  Error error = std::move(info).error();
  error.message += "; modes:";
  for (const Mode& mode : kModes)
    error.message += fmt::format("{} {}", &mode == kModes ? "" : ",", mode.name);
  return error;
}

}  // namespace derate
