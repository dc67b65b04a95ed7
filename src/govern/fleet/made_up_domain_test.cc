// A domain that no product code knows, with two knobs that can be read: what it takes is this file,
// and its journal, guard and restorers are those of every domain. Real processes, really killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/test_folder.h"
#include "base/text.h"
#include "config/paths.h"
#include "device/knob_control.h"
#include "govern/fleet/restore_left.h"
#include "govern/guard.h"
#include "govern/lease.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

const DomainId kDomain{"made-up", "0"};
constexpr auto kFound = KnobInfo::Restore::found;
constexpr std::array kKnobs{
    KnobInfo{"valve_ratio", "valve", "", true, kFound, 1, 0.001},
    KnobInfo{"pump_hertz", "pump", "Hz", true, kFound, 1e4, 0.5},
};

// Its settings are files, which outlive every process.
class Plant final : public KnobControl {
 public:
  explicit Plant(std::string folder) : folder_(std::move(folder)) {}

  std::span<const KnobInfo> knobs() const override { return kKnobs; }
  Result<KnobValues> read_knobs() override {
    KnobValues out;
    for (const KnobInfo& knob : kKnobs)
      out[knob.name] = one_value(*parse_double(*read_file(path(knob))));
    return out;
  }
  Result<void> write_knob(const KnobInfo& knob, const KnobValue& value) override {
    if (std::filesystem::exists(folder_ + "/hangs"))
      while (true) ::pause();
    return write_file_atomically(path(knob), std::to_string(value.highest));
  }
  Result<void> reset_knob(const KnobInfo&) override { return Error{Errc::not_supported, "none"}; }

 private:
  std::string path(const KnobInfo& knob) const { return folder_ + "/" + knob.name; }

  std::string folder_;
};

class MadeUpDomain : public testing::Test {
 protected:
  // Where the worker is killed: before each of its steps, and after the last.
  static constexpr int kSteps = 8;

  MadeUpDomain() {
    ::setenv("DERATE_RUN_DIR", home.file("run").c_str(), 1);
    ::setenv("DERATE_STATE_DIR", home.file("state").c_str(), 1);
    std::filesystem::create_directories(plant_folder);
    for (const KnobInfo& knob : kKnobs)
      EXPECT_TRUE(plant.write_knob(knob, found.at(knob.name)).ok());
    options.run_folder = run_directory();
    options.owner = "test";
    options.restore_time = 500ms;
    hooks.left_over = left_by;
    hooks.restore = [this](const DomainId& domain) {
      return restore_process(domain, open, "the guard", "the worker is gone", {});
    };
  }
  ~MadeUpDomain() override {
    ::unsetenv("DERATE_RUN_DIR");
    ::unsetenv("DERATE_STATE_DIR");
  }

  // Writes both knobs and restores them, as every governor does; killed before step `last`.
  int work(GuardLink& link, int last, const std::function<void()>& die) {
    int step = 0;
    const auto next = [&] {
      if (step++ == last) die();
    };
    next();
    const auto lease = link.lease(kDomain);
    if (!lease.ok()) return 1;
    const Journal journal(journal_directory());
    JournalEntry entry;
    entry.domain = kDomain;
    entry.life = current_boot();
    entry.owner = "test";
    entry.pid = ::getpid();
    const KnobValues now = *plant.read_knobs();
    for (const auto& [knob, value] : now) entry.knobs[knob].found = value;
    for (const KnobInfo& knob : kKnobs) {
      next();
      entry.knobs[knob.name].written = true;
      if (!journal.write(entry).ok()) return 2;
      next();
      if (!plant.write_knob(knob, one_value(0.25)).ok()) return 3;
    }
    for (const KnobInfo& knob : kKnobs) {
      next();
      if (!plant.write_knob(knob, *entry.found(knob.name)).ok()) return 4;
    }
    next();
    return journal.remove(kDomain).ok() ? 0 : 5;
  }
  void expect_as_found(const std::string& by) {
    EXPECT_EQ(*plant.read_knobs(), found);
    EXPECT_TRUE(Journal(journal_directory()).read(current_boot())->entries.empty());
    EXPECT_TRUE(take_lease(run_directory(), short_name(kDomain), "a later governor").ok());
    if (by.empty()) return;
    const std::string audit = *read_file(audit_file());
    EXPECT_NE(audit.find(R"("domain":"made-up:0")"), std::string::npos) << audit;
    EXPECT_NE(audit.find(by), std::string::npos) << audit;
  }
  std::vector<Restored> ask_to_restore() {
    RestoreRequest request{.open = open, .gpus = {}, .who = "derate restore", .why = "asked to"};
    return *restore_left(request, clock);
  }

  const Folder home;
  const std::string plant_folder = home.file("plant");
  const KnobValues found{{"valve_ratio", one_value(0.75)}, {"pump_hertz", one_value(50)}};
  Plant plant{plant_folder};
  const OpenToRestore open =
      [this](const DomainId& domain) -> Result<std::unique_ptr<KnobControl>> {
    if (domain != kDomain) return Error{Errc::not_found, "no such plant"};
    return std::make_unique<Plant>(plant_folder);
  };
  GuardOptions options;
  GuardHooks hooks;
  SystemClock clock;
};

TEST_F(MadeUpDomain, IsRestoredByTheGuardWhereverTheWorkerIsKilled) {
  for (int step = 0; step <= kSteps; ++step) {
    SCOPED_TRACE(step);
    hooks.work = [&](GuardLink& link) {
      return work(link, step, [] { ::kill(::getpid(), SIGKILL); });
    };
    const GuardOutcome outcome = *run_guarded(options, hooks, clock);
    EXPECT_EQ(outcome.exit_code, step < kSteps ? 128 + SIGKILL : 0);
    const bool journalled = step >= 2 && step < kSteps;
    EXPECT_EQ(outcome.restored, journalled ? std::vector{kDomain} : std::vector<DomainId>{});
    expect_as_found(journalled ? "the guard" : "");
  }
}

TEST_F(MadeUpDomain, IsRestoredByWhoComesNextWhereTheGuardIsKilledToo) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);  // adopts the worker of a killed guard
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    hooks.work = [&](GuardLink& link) {
      return work(link, step, [] {
        ::kill(::getppid(), SIGKILL);
        ::kill(::getpid(), SIGKILL);
      });
    };
    const pid_t guard = ::fork();
    if (guard == 0) ::_exit(run_guarded(options, hooks, clock)->exit_code);
    ::waitpid(guard, nullptr, 0);
    while (::waitpid(-1, nullptr, 0) > 0) continue;  // includes the worker
    RestoreRequest request{.open = open, .gpus = {}, .who = "derate restore", .why = "asked to"};
    const auto rows = *restore_left(request, clock);
    EXPECT_EQ(rows.size(), step >= 2 ? 1u : 0u);
    EXPECT_EQ(exit_code_of(rows), 0);
    expect_as_found(step >= 2 ? "derate restore" : "");
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

// A journal that cannot be used is an error at every restore, until the domain is reset.
TEST_F(MadeUpDomain, WhoseJournalCannotBeUsedIsNotRestoredUntilItIsReset) {
  std::filesystem::create_directories(journal_directory());
  std::ofstream(journal_directory() + "/made-up:0.json") << "half";
  EXPECT_EQ(left_by_nobody().at("made-up:0").remedy, "derate restore --reset");
  for (int i = 0; i < 2; ++i) {
    const auto rows = ask_to_restore();
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].outcome, Restored::Outcome::not_restored);
    EXPECT_NE(rows[0].detail.find("derate restore --reset"), std::string::npos);
    EXPECT_EQ(exit_code_of(rows), 1);
    EXPECT_EQ(left_by_nobody().at("made-up:0").remedy, "derate restore --reset");
  }
  RestoreRequest request{.open = open, .gpus = {}, .who = "derate restore", .why = "asked to"};
  request.reset = true;
  {
    const auto governed = *take_lease(run_directory(), "made-up:0", "derated, pid 1");
    EXPECT_EQ(exit_code_of(*restore_left(request, clock)), 75);
  }
  const auto rows = *restore_left(request, clock);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].outcome, Restored::Outcome::reset);
  EXPECT_EQ(exit_code_of(rows), 0);
  EXPECT_TRUE(ask_to_restore().empty());
  EXPECT_TRUE(left_by_nobody().empty());
  EXPECT_NE(read_file(audit_file())->find("its journal could not be used"), std::string::npos);
}

// If a lease's file is removed, the lease is gone, but the governor still runs.
TEST_F(MadeUpDomain, WhoseGovernorLivesIsLeftAloneThoughItsLeaseWasRemoved) {
  const pid_t governor = ::fork();
  if (governor == 0)
    while (true) ::pause();
  JournalEntry entry;
  entry.domain = kDomain;
  entry.life = current_boot();
  entry.owner = "test";
  entry.pid = governor;
  entry.pid_started = process_start(governor);
  entry.knobs["pump_hertz"] = {one_value(40), true};
  ASSERT_TRUE(machine_journal().write(entry).ok());
  EXPECT_TRUE(left_by_nobody().empty());
  EXPECT_EQ(exit_code_of(ask_to_restore()), 75);
  EXPECT_EQ(*plant.read_knobs(), found);
  // The same if no lease can be taken, as without room in the run folder.
  const std::string lock = run_directory() + "/made-up:0.lock";
  std::filesystem::remove(lock);
  std::filesystem::create_directories(lock);
  EXPECT_EQ(exit_code_of(ask_to_restore()), 75);
  EXPECT_EQ(*plant.read_knobs(), found);
  std::filesystem::remove(lock);
  ::kill(governor, SIGKILL);
  ::waitpid(governor, nullptr, 0);
  EXPECT_EQ(exit_code_of(ask_to_restore()), 0);
  EXPECT_EQ(plant.read_knobs()->at("pump_hertz"), one_value(40));
}

// A journal that cannot be moved is not restored either, and the restore fails.
TEST_F(MadeUpDomain, WhoseJournalCannotBeUsedAndNotBeMovedIsNotRestored) {
  const std::string path = journal_directory() + "/made-up:0.json";
  std::filesystem::create_directories(journal_directory());
  std::ofstream(path) << "half";
  const std::string aside = path + "." + current_boot().boot_id + ".aside";
  for (const char* number : {"", ".1", ".2", ".3", ".4", ".5", ".6", ".7", ".8", ".9"})
    std::filesystem::create_directories(aside + number + "/inside");
  std::filesystem::remove_all(aside);
  std::filesystem::create_directories(aside + "/inside");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(exit_code_of(ask_to_restore()), 1);
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_EQ(left_by_nobody().at("made-up:0").remedy, "derate restore --reset");
  }
}

// Without room for a lease, no process can hold one.
TEST_F(MadeUpDomain, IsRestoredWhereNoLeaseCanBeMade) {
  JournalEntry entry;
  entry.domain = kDomain;
  entry.life = current_boot();
  entry.owner = "test";
  entry.knobs["pump_hertz"] = {one_value(40), true};
  ASSERT_TRUE(machine_journal().write(entry).ok());
  // The lease's file cannot be created. As on a full disk, the error is io.
  std::filesystem::create_directories(run_directory() + "/made-up:0.lock");
  EXPECT_EQ(exit_code_of(ask_to_restore()), 0);
  EXPECT_EQ(plant.read_knobs()->at("pump_hertz"), one_value(40));
}

TEST_F(MadeUpDomain, IsLeftInItsJournalWhereItsRestorerHangs) {
  hooks.work = [&](GuardLink& link) {
    return work(link, 4, [&] {
      std::ofstream(plant_folder + "/hangs") << "";
      ::kill(::getpid(), SIGKILL);
    });
  };
  EXPECT_EQ(run_guarded(options, hooks, clock)->not_restored, std::vector{kDomain});
  EXPECT_NE(*plant.read_knobs(), found);
  std::filesystem::remove(plant_folder + "/hangs");
  const auto rows = ask_to_restore();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].domain, kDomain);
  EXPECT_EQ(rows[0].detail, "pump_hertz 50, valve_ratio 0.75");
  expect_as_found("derate restore");
}

}  // namespace
}  // namespace derate
