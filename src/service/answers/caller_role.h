// Role of a caller (api/operations.h) from its user and groups, as the kernel names them, by the
// section [api] of the configuration; and the check of an operation against it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/operations.h"
#include "base/log.h"
#include "base/result.h"
#include "config/settings.h"
#include "integ/user_rule.h"
#include "service/transport/client_connection.h"

namespace derate {

// The settings, with users and groups as numbers.
struct RoleRules {
  UserRule readers, users, operators, admins;
  std::optional<uid_t> agent;
  // What names a user or a group that is not there, a sentence each: such a rule lets nobody in but
  // root and the daemon's own user.
  std::vector<std::string> unknown = {};
  // The settings' texts, for people: of users, operators and admins.
  std::string users_text = {}, operators_text = {}, admins_text = {};
};

// Where names are looked for: group(5) and passwd(5) files alone, as a directory server could be
// away.
struct NameFiles {
  std::string groups = "/etc/group";
  std::string users = "/etc/passwd";
};
RoleRules role_rules(const Settings& settings, const NameFiles& files = {});

// Empty: nothing at all. Root and the daemon's own user are admins. The agent's user is the agent
// whatever else it is, groups too: it carries what others say, and must not lend them its own
// rights. Of the others each has the highest role whose rule lets it in.
std::optional<Role> caller_role(uid_t uid, std::span<const gid_t> groups, const RoleRules& rules);

// "root and the group 'derate' may: `sudo derate release ...`, or `sudo usermod -aG derate ann` and
// a new login". `user`: the caller's name; empty: it has none.
std::string who_may(const Operation& operation, const RoleRules& rules, const std::string& user);

// Whether the caller may ask for the operation: the one place that judges it. `granted`: the role
// of callers of its socket who have none of their own. Errors: no_permission.
Result<void> check_role(const Operation& operation, const Peer& peer, Role granted);

// The rules in force, for every thread.
class CallerRoles {
 public:
  // `log` has what names nobody, once.
  CallerRoles(const Settings& settings, Log log, NameFiles files = {});
  void take(const Settings& settings);
  std::optional<Role> of(const Peer& peer) const;
  // For who may not ask for the operation: who may, and how the caller becomes one of them.
  std::string way_to(const Operation& operation, const Peer& peer) const;

 private:
  std::shared_ptr<const RoleRules> rules() const;

  Log log_;
  NameFiles files_;
  std::vector<std::string> told_;
  mutable std::mutex mutex_;  // of rules_
  std::shared_ptr<const RoleRules> rules_;
};

}  // namespace derate
