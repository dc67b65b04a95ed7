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
  std::string Settings::*users;
  std::string Settings::*policies;
};
constexpr Row kRows[] = {
    {origins::run, "run", &Settings::run_users, &Settings::run_policies},
};

}  // namespace

RequestRules request_rules(RequestOrigin origin, const Settings& settings) {
  const auto* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                       [&](const Row& each) { return each.origin == origin; });
  CHECK(row != std::end(kRows));
  RequestRules out{.section = row->section,
                   .users = user_rule(settings.*row->users),
                   .users_text = settings.*row->users,
                   .max_delta = Fraction(settings.max_delta),
                   .dry_run = settings.dry_run};
  for (const std::string_view each : split(settings.*row->policies, ','))
    if (const auto name = trim(each); !name.empty()) out.policies.emplace(name);
  return out;
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
