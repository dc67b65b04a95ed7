#include "integ/process_facts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/test_as_user.h"

namespace derate {
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
  EXPECT_EQ(mine->name, "integ_test");
}

TEST(ProcessFacts, AncestorsOfAnySession) {
  const Other child([] {}), loner([] { ::setsid(); });
  for (const pid_t pid : {child.pid(), loner.pid()}) {
    const auto facts = read_process(pid);
    ASSERT_TRUE(facts);
    const auto above = read_ancestors(*facts);
    ASSERT_FALSE(above.empty());
    EXPECT_EQ(above.front().pid, ::getpid());
    for (const Ancestor& each : above) EXPECT_NE(each.pid, 1);
    EXPECT_TRUE(facts->ancestors.empty());  // for who asks
  }
}

TEST(ProcessFacts, AncestorsEndWhereTheUserLoggedIn) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0)
    GTEST_SKIP() << "no pseudo-terminal here";
  const std::string path = ::ptsname(terminal);
  const Other shell([&] {
    ::setsid();
    (void)::open(path.c_str(), O_RDWR);  // which becomes the session's
  });
  EXPECT_TRUE(read_ancestors(*read_process(shell.pid())).empty());
  ::close(terminal);
}

TEST(ProcessFacts, AncestorsOfOtherSessionsAreOfItsUser) {
  const Other child([] {}), loner([] { ::setsid(); });
  ProcessFacts other = *read_process(child.pid());
  other.uid = *other.uid + 1;
  EXPECT_EQ(read_ancestors(other).front().pid, ::getpid());
  EXPECT_EQ(read_ancestors(other).front().started, read_start(::getpid()));
  other = *read_process(loner.pid());
  other.uid = *other.uid + 1;
  EXPECT_TRUE(read_ancestors(other).empty());
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
  EXPECT_EQ(read_process(child.pid())->asked, "");  // that is for read_asked()
  EXPECT_EQ(read_asked(child.pid()), "inference");
  EXPECT_EQ(read_asked(::getpid()), "");
}

// Of an environment that its owner made large and empty, nothing is looked for far behind.
TEST(ProcessFacts, AnEnvironmentIsReadNoFurtherThanItsBeginning) {
  const auto with = [](std::size_t filler) {
    return [filler] {
      const std::string before = "A=" + std::string(filler, 'x');
      const char* environment[] = {before.c_str(), "DERATE_DELTA=0.25", "DERATE_DELTA=0.5",
                                   nullptr};
      const char* arguments[] = {"sleep", "1000", nullptr};
      ::execvpe("sleep", const_cast<char**>(arguments), const_cast<char**>(environment));
    };
  };
  const Other near(with(4080)), far(with(60'000));
  EXPECT_EQ(read_asked(near.pid()), "0.25");
  EXPECT_EQ(read_asked(far.pid()), "");
}

TEST(ProcessFacts, AnotherUserIsHimself) {
  const uid_t user = ::geteuid() == 0 ? kNobody : ::geteuid();
  const Other child([&] { (void)!::setuid(user); });
  EXPECT_EQ(read_process(child.pid())->uid, user);
}

TEST(ProcessFacts, WhoIsGoneHasNone) {
  Other child([] {});
  const pid_t pid = child.pid();
  child.end();
  EXPECT_FALSE(read_process(pid));
  EXPECT_FALSE(read_process(0));
  EXPECT_FALSE(read_process(-1));
}

// --- who speaks ----------------------------------------------------------------------------------

// A machine of one process that counts what it is asked.
struct OneProcess {
  ProcessFacts facts;
  int starts = 0, reads = 0, ancestors = 0;

  OneProcess() {
    facts.pid = 7;
    facts.uid = 1000;
    facts.session = 3;
    facts.started = 5;
  }
  ProcessReaders readers() {
    ProcessReaders out;
    out.start = [this](std::int64_t) { return ++starts, std::optional(facts.started); };
    out.facts = [this](std::int64_t pid) {
      ++reads;
      ProcessFacts made = facts;
      made.pid = pid;
      return std::optional(made);
    };
    out.ancestors = [this](const ProcessFacts&) {
      ++ancestors;
      return std::vector<Ancestor>{3};
    };
    return out;
  }
};

TEST(KnownSenders, AreReadOnceWhileTheyAreTheSame) {
  OneProcess machine;
  KnownSenders known(machine.readers());
  Instant now{};
  for (int i = 0; i < 200; ++i) EXPECT_EQ(known.look({7, 1000}, {}, now)->uid, 1000u);
  EXPECT_EQ(machine.reads, 1);
  EXPECT_EQ(machine.starts, 199);
  machine.facts.started = 6;  // the number, given out again
  EXPECT_EQ(known.look({7, 1000}, {}, now)->started, 6u);
  EXPECT_EQ(machine.reads, 2);
  machine.facts.uid = 1001;  // su
  EXPECT_EQ(known.look({7, 1001}, {}, now)->uid, 1001u);
  machine.facts.session = 7;  // setsid
  now += KnownSenders::kReadAgain + std::chrono::seconds(1);
  EXPECT_EQ(known.look({7, 1001}, {}, now)->session, 7);
}

TEST(KnownSenders, AncestorsAreReadWhereTheyMatter) {
  OneProcess machine;
  KnownSenders known(machine.readers());
  EXPECT_TRUE(known.look({7, 1000}, {4, 5}, {})->ancestors.empty());
  EXPECT_EQ(machine.ancestors, 0);
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(known.look({7, 1000}, {4, 3}, {})->ancestors, std::vector<Ancestor>{3});
  EXPECT_EQ(machine.ancestors, 1);
  EXPECT_FALSE(known.look({8, 1000, true}, {}, {})->ancestors.empty());
}

TEST(KnownSenders, AreNoMoreThanSoMany) {
  OneProcess machine;
  KnownSenders known(machine.readers());
  for (std::int64_t pid = 1; pid < 10'000; ++pid)
    (void)known.look({pid, 1000}, {}, Instant{} + std::chrono::milliseconds(pid));
  EXPECT_EQ(known.size(), KnownSenders::kMost);
  machine.reads = 0;
  (void)known.look({9'999, 1000}, {}, Instant{} + std::chrono::seconds(10));
  EXPECT_EQ(machine.reads, 0);  // the last is known
}

// --- rules ---------------------------------------------------------------------------------------

TEST(PromiseRulesOfSettings, UsersByNameAreForLater) {
  Settings settings;
  settings.max_delta = 0.25;
  settings.jobs = {{"a", "root", "", "inference", 0.02, "f:1:1"},
                   {"b", "4711", "", "batch", {}, "f:2:1"},
                   {"c", "no-such-user", "", "batch", {}, "f:3:1"}};
  const RulesOfSettings made = promise_rules(settings);
  const auto& rules = made.rules.rules;
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_TRUE(rules[0].unknown);
  EXPECT_EQ(rules[0].delta, Fraction(0.02));
  EXPECT_TRUE(rules[0].every_phase);
  EXPECT_EQ(rules[1].uid, 4711u);
  EXPECT_FALSE(rules[1].unknown);
  EXPECT_EQ(rules[1].delta, Fraction(0.3));  // cut to max_delta where it is used
  EXPECT_TRUE(rules[2].unknown);
  EXPECT_EQ(made.rules.max_delta, Fraction(0.25));
  ASSERT_EQ(made.users.size(), 2u);
  EXPECT_EQ(made.users[1].rule, 2u);
  EXPECT_EQ(made.users[1].name, "no-such-user");
  EXPECT_EQ(made.users[1].where, "f:3:1");
}

TEST(Users, AreFoundByName) {
  EXPECT_EQ(*find_user("root"), 0u);
  EXPECT_EQ(*find_user("no-such-user"), std::nullopt);
}

}  // namespace
}  // namespace derate
