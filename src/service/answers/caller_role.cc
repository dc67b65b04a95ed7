#include "service/answers/caller_role.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace derate {
namespace {

UserRule named_rule(const char* key, const std::string& text, const NameFiles& files,
                    std::vector<std::string>& unknown) {
  const UserRule out = user_rule(text, files.groups);
  if (!out.everyone && !out.group && text != "root")
    unknown.push_back(fmt::format(
        "[api] {}: there is no group '{}': only root, and who has a higher role, may what they may",
        key, text));
  return out;
}

}  // namespace

RoleRules role_rules(const Settings& settings, const NameFiles& files) {
  RoleRules out;
  out.readers = named_rule("readers", settings.api_readers, files, out.unknown);
  out.users = named_rule("users", settings.api_users, files, out.unknown);
  out.operators = named_rule("operators", settings.api_operators, files, out.unknown);
  out.admins = named_rule("admins", settings.api_admins, files, out.unknown);
  out.users_text = settings.api_users;
  out.operators_text = settings.api_operators;
  out.admins_text = settings.api_admins;
  if (settings.api_agent.empty()) return out;
  out.agent = user_named(settings.api_agent, files.users);
  if (!out.agent)
    out.unknown.push_back(
        fmt::format("[api] agent: there is no user '{}': nobody is the agent", settings.api_agent));
  return out;
}

std::optional<Role> caller_role(uid_t uid, std::span<const gid_t> groups, const RoleRules& rules) {
  if (uid == 0 || uid == ::geteuid()) return Role::admin;
  if (uid == rules.agent) return Role::agent;
  if (rules.admins.allows(uid, groups)) return Role::admin;
  if (rules.operators.allows(uid, groups)) return Role::operates;
  if (rules.users.allows(uid, groups)) return Role::user;
  if (rules.readers.allows(uid, groups)) return Role::reader;
  return std::nullopt;
}

std::string who_may(const Operation& operation, const RoleRules& rules, const std::string& user) {
  const bool of_admins = operation.role == Role::admin, of_users = operation.role == Role::user;
  const std::string& rule = of_admins  ? rules.admins_text
                            : of_users ? rules.users_text
                                       : rules.operators_text;
  const UserRule& parsed = of_admins ? rules.admins : of_users ? rules.users : rules.operators;
  const std::string sudo =
      *operation.verb == 0 ? "with sudo" : fmt::format("`sudo derate {} ...`", operation.verb);
  if (rule.empty() || rule == "root" || rule == "everyone") return "root may: " + sudo;
  if (!parsed.group) return fmt::format("root may: {} (there is no group '{}' here)", sudo, rule);
  return fmt::format(
      "root and the group '{0}' may: {1}, or `sudo usermod -aG {0} {2}` and a new login", rule,
      sudo, user.empty() ? "USER" : user);
}

Result<void> check_role(const Operation& operation, const Peer& peer, Role granted) {
  const Role role = peer.role.value_or(granted);
  const char* const wanted = to_string(operation.role);
  if (!may(role, operation) && peer.role)
    return Error{Errc::no_permission, fmt::format("{} wants the role {}, {} has {}", operation.name,
                                                  wanted, caller_name(peer), to_string(role))};
  if (!may(role, operation))
    return Error{Errc::no_permission,
                 fmt::format("command '{}': wants the role {}, callers of this socket have {}",
                             operation.name, wanted, to_string(role))};
  // The kernel alone says whose a thing is.
  if (operation.changes == Changes::own && !peer.token.empty())
    return Error{Errc::no_permission,
                 fmt::format("{} is for users of this machine, not for tokens", operation.name)};
  return {};
}

CallerRoles::CallerRoles(const Settings& settings, Log log, NameFiles files)
    : log_(std::move(log)), files_(std::move(files)) {
  take(settings);
}

void CallerRoles::take(const Settings& settings) {
  auto rules = std::make_shared<const RoleRules>(role_rules(settings, files_));
  for (const std::string& each : rules->unknown)
    if (std::find(told_.begin(), told_.end(), each) == told_.end()) log_.warning(each);
  told_ = rules->unknown;
  const std::lock_guard lock(mutex_);
  rules_ = std::move(rules);
}

std::shared_ptr<const RoleRules> CallerRoles::rules() const {
  const std::lock_guard lock(mutex_);
  return rules_;
}

std::optional<Role> CallerRoles::of(const Peer& peer) const {
  return caller_role(peer.uid, peer.groups, *rules());
}

std::string CallerRoles::way_to(const Operation& operation, const Peer& peer) const {
  if (peer.token.empty())
    return who_may(operation, *rules(),
                   name_of_user(peer.uid, files_.users).value_or(std::string()));
  if (operation.role == Role::admin) return "no token may: root does, on this machine";
  return fmt::format("`sudo derate token create NAME --role {}` makes one that may",
                     to_string(operation.role));
}

}  // namespace derate
