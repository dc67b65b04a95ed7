#include "apps/common/process_facts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "base/check.h"

namespace derate::cli {
namespace {

// A process that does `first` and then waits to be killed.
class Other {
 public:
  explicit Other(const std::function<void()>& first) {
    int ready[2];
    CHECK(::pipe2(ready, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      first();
      (void)!::write(ready[1], "x", 1);
      while (true) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    (void)!::read(ready[0], &byte, 1);  // ready, or become another program
    ::close(ready[0]);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

TEST(ProcessFacts, OfThisProcess) {
  const auto mine = read_process(::getpid());
  ASSERT_TRUE(mine);
  EXPECT_EQ(mine->pid, ::getpid());
  EXPECT_EQ(mine->uid, ::getuid());
  EXPECT_EQ(mine->group, ::getpgrp());
  EXPECT_EQ(mine->session, ::getsid(0));
  EXPECT_GT(mine->started, 0u);
  EXPECT_EQ(mine->name, "daemon_test");
}

TEST(ProcessFacts, AncestorsAreThoseOfTheSession) {
  const Other child([] {}), loner([] { ::setsid(); });
  const auto facts = read_process(child.pid());
  ASSERT_TRUE(facts);
  ASSERT_FALSE(facts->ancestors.empty());
  EXPECT_EQ(facts->ancestors.front(), ::getpid());
  EXPECT_TRUE(read_process(loner.pid())->ancestors.empty());
}

TEST(ProcessFacts, NamesMayHaveAnyCharacter) {
  const Other child([] { ::prctl(PR_SET_NAME, ") 1 (2"); });
  const auto facts = read_process(child.pid());
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->name, ") 1 (2");
  EXPECT_EQ(facts->group, ::getpgrp());
}

TEST(ProcessFacts, TheEnvironmentIsThatOfTheProgram) {
  const Other child([] {
    ::setenv("DERATE_DELTA", "inference", 1);
    ::execlp("sleep", "sleep", "1000", nullptr);
  });
  EXPECT_EQ(read_process(child.pid())->asked, "inference");
  EXPECT_EQ(read_process(::getpid())->asked, "");
}

TEST(ProcessFacts, AnotherUserIsHimself) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become others";
  const Other child([] { (void)!::setuid(65534); });
  EXPECT_EQ(read_process(child.pid())->uid, 65534u);
}

TEST(ProcessFacts, WhoIsGoneHasNone) {
  Other child([] {});
  const pid_t pid = child.pid();
  child.end();
  EXPECT_FALSE(read_process(pid));
  EXPECT_FALSE(read_process(0));
  EXPECT_FALSE(read_process(-1));
}

TEST(PromiseRulesOfSettings, UsersAreLookedUpOnce) {
  Settings settings;
  settings.max_delta = 0.25;
  settings.jobs = {{"a", "root", "", "inference", 0.02, "f:1:1"},
                   {"b", "4711", "", "batch", {}, "f:2:1"},
                   {"c", "no-such-user", "", "batch", {}, "f:3:1"}};
  std::string told;
  const PromiseRules rules = promise_rules(settings, [&](const std::string& text) { told = text; });
  EXPECT_EQ(told, "f:3:1: this machine has no user 'no-such-user': the rule holds for nobody");
  ASSERT_EQ(rules.rules.size(), 3u);
  EXPECT_EQ(rules.rules[0].uid, 0u);
  EXPECT_EQ(rules.rules[0].delta, Fraction(0.02));
  EXPECT_TRUE(rules.rules[0].every_phase);
  EXPECT_EQ(rules.rules[1].uid, 4711u);
  EXPECT_EQ(rules.rules[1].delta, Fraction(0.3));  // cut to max_delta where it is used
  EXPECT_TRUE(rules.rules[2].nobody);
  EXPECT_EQ(rules.max_delta, Fraction(0.25));
}

}  // namespace
}  // namespace derate::cli
