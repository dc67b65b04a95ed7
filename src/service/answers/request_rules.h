// The rules for users who request that GPUs be governed: one table, with a row for each origin
// whose requests come from users. For operators, the role of each operation decides
// (api/operations.cc).
#pragma once

#include <sys/types.h>

#include <set>
#include <span>
#include <string>

#include "base/result.h"
#include "config/settings.h"
#include "govern/fleet/assignments.h"
#include "integ/user_rule.h"

namespace derate {

struct RequestRules {
  std::string section = {};  // of the configuration that has the two settings, for refusals
  UserRule users = {};
  std::string users_text = {};          // the setting
  std::set<std::string> policies = {};  // by name
  Fraction max_delta{0.3};              // the most that may be lost
  bool dry_run = false;                 // nothing may be written
};
// Of an origin that is in the table.
RequestRules request_rules(RequestOrigin origin, const Settings& settings);

// The policy with the operators' other parameters, where they have assigned the same (`by`,
// of_operators(); null: nothing): the loss alone is the user's to choose.
PolicyAssignment with_operators_parameters(PolicyAssignment wanted, const Assignment* by);

// Whether the user may have a GPU governed so. What operators have set there comes besides
// (beyond_operators()). Errors: no_permission.
Result<void> check_request(const RequestRules& rules, uid_t uid, std::span<const gid_t> groups,
                           const PolicyAssignment& wanted);

// The same but for the user, who may. `who`: the subject of a refusal, "user 1000".
Result<void> check_wanted(const RequestRules& rules, const std::string& who,
                          const PolicyAssignment& wanted);

}  // namespace derate
