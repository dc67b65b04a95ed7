// Power modes max, balanced and saving: three words for users that choose no policy, after the
// power modes of NVIDIA's tools, each a policy with its parameters.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/policy.h"

namespace derate {

struct Mode {
  const char* name;
  const char* summary;  // one line
  const char* policy;
  std::span<const char* const> assignments;  // "delta=0.10"
};

// All modes, from full performance to least energy. No mode has a policy's name.
std::span<const Mode> modes();

// The mode of that name; null when there is none.
const Mode* find_mode(std::string_view name);

// What a user may write where a policy is asked for: a policy's name or a mode's.
struct PolicyPick {
  const PolicyInfo* info = nullptr;
  std::vector<std::string> assignments;  // the mode's; empty for a policy
};

// Errors: not_found, naming the policies and the modes there are.
Result<PolicyPick> pick_policy(std::string_view name);

}  // namespace derate
