// The policies there are, by their names.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/param_spec.h"
#include "policy/policy.h"

namespace derate {

// All policies, in the order of the documentation.
std::span<const PolicyInfo> policies();

// Errors: not_found, naming the policies there are.
Result<const PolicyInfo*> find_policy(std::string_view name);

// Parses "name=value" assignments onto the policy's defaults.
// Errors: invalid_argument naming the parameter, the value and what is allowed.
Result<ParamValues> policy_params(const PolicyInfo& info, std::span<const std::string> assignments);

// Whether work can lose more than the policy's delta under it, or the policy has none.
bool can_exceed_promise(const PolicyInfo& info);

// The control period that the policy asks for: its parameter `tick`, else 200 ms.
Duration policy_tick(const ParamValues& params);

}  // namespace derate
