#include "integ/user_rule.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/number.h"

namespace derate {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File opened(const std::string& file) { return {std::fopen(file.c_str(), "re"), std::fclose}; }

std::optional<gid_t> find_group(const std::string& name, const std::string& file) {
  const File in = opened(file);
  if (in == nullptr) return std::nullopt;
  while (const group* const each = ::fgetgrent(in.get()))
    if (name == each->gr_name) return each->gr_gid;
  return std::nullopt;
}

}  // namespace

bool UserRule::allows(uid_t uid, std::span<const gid_t> groups) const {
  return everyone || uid == 0 || uid == ::geteuid() ||
         (group && std::find(groups.begin(), groups.end(), *group) != groups.end());
}

UserRule user_rule(const std::string& text, const std::string& file) {
  if (text == "everyone") return {.everyone = true, .group = {}};
  if (text == "root") return {};
  if (const auto number = parse_number<gid_t>(text)) return {.everyone = false, .group = *number};
  return {.everyone = false, .group = find_group(text, file)};
}

std::optional<uid_t> user_named(const std::string& text, const std::string& file) {
  if (const auto number = parse_uid(text)) return *number;
  const File in = opened(file);
  if (in == nullptr) return std::nullopt;
  while (const passwd* const each = ::fgetpwent(in.get()))
    if (text == each->pw_name) return each->pw_uid;
  return std::nullopt;
}

std::optional<std::string> name_of_user(uid_t uid, const std::string& file) {
  const File in = opened(file);
  if (in == nullptr) return std::nullopt;
  while (const passwd* const each = ::fgetpwent(in.get()))
    if (uid == each->pw_uid) return each->pw_name;
  return std::nullopt;
}

}  // namespace derate
