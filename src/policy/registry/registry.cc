#include "policy/registry/registry.h"

#include <fmt/format.h>

#include <string>

#include "base/suggest.h"
#include "policy/assure/assure.h"
#include "policy/published/published.h"
#include "policy/simple_policies.h"
#include "policy/slo/slo.h"

namespace derate {
namespace {

// The one table: a policy that is not here does not exist.
const PolicyInfo kPolicies[] = {
    assure_info(),       max_freq_info(),   efficient_fix_info(), nv_boost_info(),
    utiliz_scale_info(), geepafs_info(),    sweet_spot_info(),    power_cap_info(),
    gpu_activity_info(), energy_ucb_info(), slo_info(),
};

}  // namespace

std::span<const PolicyInfo> policies() { return kPolicies; }

Result<const PolicyInfo*> find_policy(std::string_view name) {
  std::string known;
  for (const PolicyInfo& info : kPolicies) {
    if (name == info.name) return &info;
    known += known.empty() ? "" : ", ";
    known += info.name;
  }
  return Error{Errc::not_found,
               fmt::format("no policy '{}'{}", name, choices(name, "; there are: ", known))};
}

Result<ParamValues> policy_params(const PolicyInfo& info,
                                  std::span<const std::string> assignments) {
  ParamValues values = default_params(info.params);
  for (const std::string& assignment : assignments) {
    const auto equals = assignment.find('=');
    if (equals == std::string::npos)
      return Error{
          Errc::invalid_argument,
          fmt::format("parameter '{0}': wanted is NAME=VALUE, such as {1}=0.1", assignment,
                      find_param(info.params, info.name, assignment).ok() ? assignment : "delta")};
    const std::string_view name = std::string_view(assignment).substr(0, equals);
    const ParamSpec* spec = TRY(find_param(info.params, info.name, name));
    values.set(name, TRY(parse_param(*spec, std::string_view(assignment).substr(equals + 1))));
  }
  return values;
}

bool can_exceed_promise(const PolicyInfo& info) {
  switch (info.promise) {
    case PolicyInfo::Promise::delta:
      return info.as_published;
    case PolicyInfo::Promise::none:
      return true;
    case PolicyInfo::Promise::no_loss:
      return false;
  }
  return true;
}

Duration policy_tick(const ParamValues& params) {
  return from_seconds(params.number("tick").value_or(0.2));
}

}  // namespace derate
