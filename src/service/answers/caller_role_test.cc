#include "service/answers/caller_role.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/json.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "service/transport/control_socket.h"

namespace derate {
namespace {

constexpr uid_t kSomebody = 54321, kAgent = 970;
constexpr gid_t kReaders = 4001, kUsers = 4002, kOperators = 4003, kAdmins = 4004;

UserRule group_rule(gid_t group) { return {.everyone = false, .group = group}; }

RoleRules each_a_group() {
  return {group_rule(kReaders), group_rule(kUsers), group_rule(kOperators), group_rule(kAdmins),
          kAgent};
}

// All combinations of groups, rules and users: the highest role whose rule lets one in.
TEST(CallerRole, IsTheHighestWhoseRuleLetsOneIn) {
  constexpr std::array kGroups{kReaders, kUsers, kOperators, kAdmins};
  constexpr std::array kRoles{Role::reader, Role::user, Role::operates, Role::admin};
  enum class Kind { root, group, everyone, nobody };
  constexpr std::array kKinds{Kind::root, Kind::group, Kind::everyone, Kind::nobody};
  for (int in = 0; in < 16; ++in) {
    std::vector<gid_t> groups{100};
    for (std::size_t i = 0; i < 4; ++i)
      if ((in >> i & 1) != 0) groups.push_back(kGroups[i]);
    for (int kinds = 0; kinds < 256; ++kinds) {
      std::array<UserRule, 4> each;
      std::optional<Role> wanted;
      for (std::size_t i = 0; i < 4; ++i) {
        const Kind kind = kKinds[static_cast<std::size_t>(kinds >> (2 * i) & 3)];
        each[i].everyone = kind == Kind::everyone;
        if (kind == Kind::group) each[i].group = kGroups[i];
        if (each[i].everyone || (kind == Kind::group && (in >> i & 1) != 0)) wanted = kRoles[i];
      }
      const RoleRules rules{each[0], each[1], each[2], each[3], kAgent};
      EXPECT_EQ(caller_role(kSomebody, groups, rules), wanted) << in << " " << kinds;
      EXPECT_EQ(caller_role(kAgent, groups, rules), Role::agent);
      EXPECT_EQ(caller_role(0, groups, rules), Role::admin);
      EXPECT_EQ(caller_role(::geteuid(), groups, rules), Role::admin);
    }
  }
}

// A refusal says who may, and how the caller becomes one of them.
TEST(CallerRole, WhoMayIsSaidByTheRules) {
  Settings settings;
  settings.api_operators = "derate";
  RoleRules rules = role_rules(settings, {"/no/such/file", "/no/such/file"});
  const Operation& set = operation<PolicySet>();
  EXPECT_EQ(who_may(set, rules, "ann"),
            "root may: `sudo derate policy set ...` (there is no group 'derate' here)");
  EXPECT_EQ(who_may(operation<ConfigSet>(), rules, "ann"),
            "root may: `sudo derate config set ...`");
  EXPECT_EQ(who_may(operation<TrialRenew>(), rules, "ann"), "root may: `sudo derate tune run ...`");
  rules.operators.group = kOperators;
  EXPECT_EQ(who_may(set, rules, "ann"),
            "root and the group 'derate' may: `sudo derate policy set ...`, or `sudo usermod -aG "
            "derate ann` and a new login");
  EXPECT_NE(who_may(set, rules, "").find("-aG derate USER`"), std::string::npos);
}

TEST(CallerRole, ATokenIsToldOfTokens) {
  const CallerRoles roles(Settings{}, {});
  const Peer peer{.uid = kSomebody, .role = Role::reader, .token = "grafana"};
  EXPECT_EQ(roles.way_to(operation<PolicySet>(), peer),
            "`sudo derate token create NAME --role operator` makes one that may");
  EXPECT_EQ(roles.way_to(operation<TokenCreate>(), peer),
            "no token may: root does, on this machine");
}

// It must not lend who speaks through it what it could do by itself.
TEST(CallerRole, TheAgentIsTheAgentWhateverElseItIs) {
  const RoleRules rules = each_a_group();
  EXPECT_EQ(caller_role(kAgent, std::array{kOperators, kAdmins}, rules), Role::agent);
  RoleRules none = rules;
  none.agent = std::nullopt;
  EXPECT_EQ(caller_role(kAgent, std::array{kOperators}, none), Role::operates);
  RoleRules root = rules;  // named by mistake: root stays what it is
  root.agent = 0;
  EXPECT_EQ(caller_role(0, {}, root), Role::admin);
}

struct Names {
  Names() {
    EXPECT_TRUE(write_file_atomically(files.groups, "derate:x:4003:\nwheel:x:4004:\n").ok());
    EXPECT_TRUE(write_file_atomically(files.users, "derate-agent:x:970:970:::\n").ok());
  }
  Folder folder;
  NameFiles files{folder.path() + "/group", folder.path() + "/passwd"};
};

TEST(CallerRole, TheDefaultsAreTheDocumentedOnes) {
  const Names names;
  const RoleRules rules = role_rules(Settings{}, names.files);
  EXPECT_TRUE(rules.unknown.empty());
  EXPECT_EQ(caller_role(kSomebody, {}, rules), Role::user);
  EXPECT_EQ(caller_role(kSomebody, std::array{kOperators}, rules), Role::operates);
  EXPECT_EQ(caller_role(kSomebody, std::array<gid_t, 1>{0}, rules), Role::user);
  EXPECT_EQ(caller_role(kAgent, {}, rules), Role::agent);
  EXPECT_EQ(caller_role(0, {}, rules), Role::admin);
}

TEST(CallerRole, WhatNamesNobodyLetsNobodyIn) {
  const Names names;
  Settings settings;
  settings.api_readers = settings.api_users = "root";
  settings.api_operators = "gpu-ops";
  settings.api_admins = "-1";
  settings.api_agent = "nobody-has-this-name";
  const RoleRules rules = role_rules(settings, names.files);
  for (const gid_t group : {gid_t{0}, gid_t{100}, kOperators, static_cast<gid_t>(-1)})
    EXPECT_EQ(caller_role(kSomebody, std::array{group}, rules), std::nullopt);
  EXPECT_EQ(caller_role(static_cast<uid_t>(-1), {}, rules), std::nullopt);
  EXPECT_EQ(caller_role(0, {}, rules), Role::admin);
  ASSERT_EQ(rules.unknown.size(), 3u);
  EXPECT_EQ(rules.unknown[0],
            "[api] operators: there is no group 'gpu-ops': only root, and who has a higher role, "
            "may what they may");
}

TEST(CallerRole, WhatNamesNobodyIsLoggedOnce) {
  const Names names;
  std::vector<std::string> lines;
  const Log log([&](const LogRecord& record) { lines.push_back(record.text); });
  Settings settings;
  settings.api_operators = "gpu-ops";
  CallerRoles roles(settings, log, names.files);
  roles.take(settings);
  EXPECT_EQ(lines.size(), 1u);
  settings.api_operators = "derate";
  roles.take(settings);
  EXPECT_EQ(lines.size(), 1u);
  settings.api_operators = "gpu-ops";  // wrong anew
  roles.take(settings);
  EXPECT_EQ(lines.size(), 2u);
}

TEST(CallerRole, MayBeAskedWhileARuleChanges) {
  const Names names;
  Settings open, shut;
  shut.api_readers = shut.api_users = "root";
  CallerRoles roles(open, {}, names.files);
  std::atomic<bool> stop = false;
  int seen = 0;
  std::thread asking([&] {
    while (!stop) {
      const auto role = roles.of({.uid = kSomebody});
      EXPECT_TRUE(!role || role == Role::user);
      ++seen;
    }
  });
  for (int i = 0; i < 200; ++i) roles.take(i % 2 == 0 ? shut : open);
  stop = true;
  asking.join();
  EXPECT_EQ(roles.of({.uid = kSomebody}), Role::user);
}

// The groups that a rule looks at are those that the kernel tells of who has connected.
TEST(CallerRole, ASocketsGroupsAreItsCallers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become others";
  const Folder folder(0755);
  const std::string path = folder.path() + "/s";
  SystemClock clock;
  const auto server = ControlServer::create(path, clock, Audience::everyone);
  ASSERT_TRUE(server.ok());
  for (const bool member : {true, false}) {
    std::optional<Role> seen;
    std::thread serving([&] {
      bool answered = false;
      for (int i = 0; i < 500 && !answered; ++i) {
        (*server)->serve([&](std::string_view, const Peer& peer) {
          seen = caller_role(peer.uid, peer.groups, each_a_group());
          answered = true;
          return std::optional<std::string>("{}");
        });
        clock.sleep_until(clock.now() + std::chrono::milliseconds(10));
      }
    });
    const auto call = [&path] {
      const auto answer = control_call(path, "{}", std::chrono::seconds(5));
      return answer.ok() ? *answer : answer.error().message;
    };
    using Groups = std::vector<gid_t>;
    const std::string told = as_user(kNobody, call, member ? Groups{kOperators} : Groups{});
    serving.join();
    EXPECT_EQ(told, "{}");
    EXPECT_EQ(seen, member ? std::optional(Role::operates) : std::nullopt);
  }
}

}  // namespace
}  // namespace derate
