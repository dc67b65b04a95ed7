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

std::optional<Role> CallerRoles::of(const Peer& peer) const {
  const auto rules = [this] {
    const std::lock_guard lock(mutex_);
    return rules_;
  }();
  return caller_role(peer.uid, peer.groups, *rules);
}

}  // namespace derate
