#include "service/answers/request_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace derate {
namespace {

// The settings of an origin's section. `users` is empty where a user does not decide.
struct Row {
  RequestOrigin origin;
  const char* section;
  std::optional<std::string> users;
  const std::string& policies;
};

Row row_of(RequestOrigin origin, const Settings& settings) {
  if (origin == origins::pod)
    return {origin, "kubernetes", std::nullopt, settings.kubernetes.policies};
  if (origin == origins::job)
    return {origin, "scheduler", settings.scheduler.users, settings.scheduler.policies};
  CHECK(origin == origins::run);
  return {origin, "run", settings.run.users, settings.run.policies};
}

}  // namespace

RequestRules request_rules(RequestOrigin origin, const Settings& settings) {
  const Row row = row_of(origin, settings);
  RequestRules out{.section = row.section,
                   .policies = split_names(row.policies),
                   .max_delta = Fraction(settings.max_delta),
                   .dry_run = settings.dry_run};
  if (!row.users) return out;
  out.users = user_rule(*row.users);
  out.users_text = *row.users;
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
  if (!rules.users.allows(uid, groups)) {
    const std::string name = name_of_user(uid).value_or("USER");
    const std::string way =
        rules.users.group
            ? fmt::format("whose members may (`sudo usermod -aG {} {}`, and a new login)",
                          rules.users_text, name)
            : "so that root alone may (sudo)";
    return Error{Errc::no_permission,
                 fmt::format("user {} may not have GPUs governed: [{}] users is '{}', {}", uid,
                             rules.section, rules.users_text, way)};
  }
  return check_wanted(rules, fmt::format("user {}", uid), wanted);
}

Result<void> check_wanted(const RequestRules& rules, const std::string& who,
                          const PolicyAssignment& wanted) {
  const std::string name = wanted.policy.info->name;
  const auto refused = [](std::string why) { return Error{Errc::no_permission, std::move(why)}; };
  if (!rules.policies.contains(name))
    return refused(fmt::format("policy {}: {} may choose from {} ([{}] policies)", name, who,
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
