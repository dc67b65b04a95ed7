// Rule of a setting for the users that may make a request (root, everyone, or a group), and user
// numbers by name, from group(5) and passwd(5) files.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>

namespace derate {

struct UserRule {
  bool everyone = false;
  std::optional<gid_t> group;  // whose members may; root always may
  bool allows(uid_t uid, std::span<const gid_t> groups) const;
};

// "root", "everyone", or a group by name or number. A name is looked for in `file`, as group(5) has
// it, alone: a directory server could be away. Without such a group nobody but root may.
UserRule user_rule(const std::string& text, const std::string& file = "/etc/group");

// A user by name or number, as passwd(5) has names in `file`, alone as above; empty: there is none.
std::optional<uid_t> user_named(const std::string& text, const std::string& file = "/etc/passwd");

// The name of a user in `file`; empty: it has none there.
std::optional<std::string> name_of_user(uid_t uid, const std::string& file = "/etc/passwd");

}  // namespace derate
