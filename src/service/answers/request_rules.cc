#include "service/answers/request_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace derate {
namespace {

struct Row {
  RequestOrigin origin;
  const char* section;
};
constexpr Row kRows[] = {{origins::job, "scheduler"}, {origins::run, "run"}};

}  // namespace

RequestRules request_rules(RequestOrigin origin, const Settings& settings) {
  const auto* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                       [&](const Row& each) { return each.origin == origin; });
  CHECK(row != std::end(kRows));
  const bool job = origin == origins::job;
  const std::string& users = job ? settings.scheduler.users : settings.run.users;
  RequestRules out{.section = row->section,
                   .users = user_rule(users),
                   .users_text = users,
                   .max_delta = Fraction(settings.max_delta),
                   .dry_run = settings.dry_run};
  const std::string& policies = job ? settings.scheduler.policies : settings.run.policies;
  for (const std::string_view each : split(policies, ','))
    if (const auto name = trim(each); !name.empty()) out.policies.emplace(name);
  return out;
}

PolicyAssignment with_operators_parameters(PolicyAssignment wanted, const Assignment* by) {
  if (by == nullptr || !by->policy || by->policy->policy.info != wanted.policy.info) return wanted;
  const auto delta = wanted.policy.params.number("delta");
  wanted.policy.params = by->policy->policy.params;
  if (delta) wanted.policy.params.set("delta", {*delta});
  return wanted;
}

Result<void> check_request(const RequestRules& rules, uid_t uid, std::span<const gid_t> groups,
                           const PolicyAssignment& wanted) {
  const std::string name = wanted.policy.info->name;
  const auto refused = [](std::string why) { return Error{Errc::no_permission, std::move(why)}; };
  if (!rules.users.allows(uid, groups))
    return refused(fmt::format(
        "user {} may not have GPUs governed: [{}] users is '{}'{}", uid, rules.section,
        rules.users_text,
        rules.users.group ? ", whose members may (`sudo usermod -aG`, and a new login)" : ""));
  if (!rules.policies.contains(name))
    return refused(fmt::format("policy {}: user {} may choose from {} ([{}] policies)", name, uid,
                               fmt::join(rules.policies, ", "), rules.section));
  const double loss = most_loss(wanted.policy);
  if (loss > rules.max_delta.value() + kLossRounding)
    return refused(
        fmt::format("{} may lose {:.4g} % of performance: allowed are {:.4g} % "
                    "([promise] max_delta)",
                    name, 100 * loss, 100 * rules.max_delta.value()));
  if (rules.dry_run && !wanted.dry_run)
    return refused("derated is to write nothing ([governor] dry_run)");
  return {};
}

}  // namespace derate
