#include "store/journal.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

using namespace literals;
namespace fs = std::filesystem;

const BootIdentity kLife{"boot-1", "4711"};

JournalEntry sample_entry(const std::string& uuid = "GPU-1") {
  JournalEntry entry;
  entry.domain = gpu_domain(uuid);
  entry.life = kLife;
  entry.owner = "derated";
  entry.pid = 17;
  entry.time = WallTime(std::chrono::seconds(1'700'000'000));
  entry.knobs = {{kClockLock, {{}, true}},
                 {kPowerLimit, {one_value(300), false}},
                 {kApplicationClock, {one_value(1530), false}},
                 {kApplicationMemoryClock, {one_value(877), false}}};
  return entry;
}

class JournalTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    fs::create_directories(folder());
    std::ofstream(folder() + "/" + name) << text;
  }
  std::string folder() const { return root_.file("state/journal"); }

  const Folder root_;
  Journal journal_{folder()};
};

TEST_F(JournalTest, OnlyWhatDeadWritersHadBegunIsRemoved) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  journal_.remove_unfinished();  // no folder yet
  ASSERT_TRUE(journal_.write(sample_entry("GPU-1")).ok());
  const std::string gone = "GPU-2.json." + std::to_string(dead) + ".tmp";
  const std::string random = "GPU-3.json." + std::to_string(dead) + "-00ff.tmp";
  const std::vector<std::string> kept = {"GPU-1.json", "GPU-2.json.tmp", "x.tmp", ".tmp",
                                         "GPU-2.json." + std::to_string(::getpid()) + ".tmp"};
  for (const std::string& name : kept)
    if (name != "GPU-1.json") put(name, "half");
  put(gone, "half");
  put(random, "half");
  journal_.remove_unfinished();
  EXPECT_FALSE(fs::exists(folder() + "/" + gone));
  EXPECT_FALSE(fs::exists(folder() + "/" + random));
  for (const std::string& name : kept) EXPECT_TRUE(fs::exists(folder() + "/" + name)) << name;
}

TEST_F(JournalTest, WhatIsWrittenIsReadAndRemoved) {
  EXPECT_TRUE(journal_.read(kLife)->entries.empty());  // no folder yet
  JournalEntry first = sample_entry("GPU-b"), second = sample_entry("GPU-a");
  second.knobs[kClockLock].found = KnobValue{210, 1200};
  second.knobs[kPowerLimit].written = true;
  ASSERT_TRUE(journal_.write(first).ok());
  ASSERT_TRUE(journal_.write(second).ok());
  const auto left = *journal_.read(kLife);
  EXPECT_EQ(left.entries, (std::vector<JournalEntry>{second, first}));
  EXPECT_TRUE(left.unusable.empty());
  EXPECT_TRUE(journal_.remove(gpu_domain("GPU-a")).ok());
  EXPECT_TRUE(journal_.remove(gpu_domain("GPU-a")).ok());
  EXPECT_EQ(journal_.read(kLife)->entries, std::vector<JournalEntry>{first});
}

TEST_F(JournalTest, AnotherLifeIsNeverApplied) {
  ASSERT_TRUE(journal_.write(sample_entry()).ok());
  for (const BootIdentity& other :
       {BootIdentity{"boot-2", "4711"}, BootIdentity{"boot-1", "4712"}}) {
    const auto left = *journal_.read(other);
    EXPECT_TRUE(left.entries.empty());
    ASSERT_EQ(left.unusable.size(), 1u);
    EXPECT_NE(left.unusable[0].why.find("earlier"), std::string::npos);
  }
  const BootIdentity later{"boot-2", ""};
  ASSERT_TRUE(journal_.set_aside(journal_.read(later)->unusable[0], later).ok());
  EXPECT_TRUE(journal_.read(later)->unusable.empty());
  EXPECT_TRUE(journal_.lost(later).empty());  // the settings to restore are gone
}

TEST_F(JournalTest, WhatCannotBeUsedIsLostUntilItIsSettledOrTheMachineIsBooted) {
  put("GPU-1.json", "half");
  put("notes.json", "no journal of a GPU");
  const Leftovers left = *journal_.read(kLife);
  for (const UnusableJournal& bad : left.unusable) ASSERT_TRUE(journal_.set_aside(bad, kLife).ok());
  const auto lost = journal_.lost(kLife);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].domain, gpu_domain("GPU-1"));
  EXPECT_TRUE(fs::exists(lost[0].path));
  EXPECT_TRUE(journal_.lost({"boot-2", ""}).empty());
  ASSERT_TRUE(journal_.settle(lost[0]).ok());
  EXPECT_TRUE(journal_.lost(kLife).empty());
  EXPECT_TRUE(fs::exists(folder() + "/GPU-1.json.aside"));
}

TEST_F(JournalTest, EveryFlippedBitIsSeen) {
  JournalEntry entry = sample_entry();
  entry.pid_started = 4711;
  const std::string text = journal_text(entry);
  for (std::size_t at = 0; at < text.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      EXPECT_FALSE(parse_journal(changed).ok()) << changed;
    }
}

// A file that is not set aside yet counts as lost, too. A folder at its new path gives way.
TEST_F(JournalTest, WhatCannotBeSetAsideIsLostToo) {
  put("GPU-1.json", "half");
  const std::string path = folder() + "/GPU-1.json";
  const auto lost = journal_.lost(kLife);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].domain, gpu_domain("GPU-1"));
  fs::create_directories(path + ".aside/inside");
  fs::create_directories(path + ".boot-1.aside/inside");
  const Leftovers left = *journal_.read(kLife);
  for (const UnusableJournal& bad : left.unusable) ASSERT_TRUE(journal_.set_aside(bad, kLife).ok());
  ASSERT_EQ(journal_.lost(kLife).size(), 1u);
  ASSERT_TRUE(journal_.settle(journal_.lost(kLife)[0]).ok());
  EXPECT_TRUE(journal_.lost(kLife).empty());
  EXPECT_TRUE(fs::is_regular_file(path + ".aside"));
  EXPECT_TRUE(fs::exists(path + ".aside.1/inside"));
}

class CopiedJournal : public JournalTest {
 protected:
  std::string copies() const { return root_.file("run/journal"); }
  Journal copied_{folder(), copies()};
};

TEST_F(CopiedJournal, ItsCopyTakesThePlaceOfAFileThatIsNotWhole) {
  ASSERT_TRUE(copied_.write(sample_entry()).ok());
  const std::string path = folder() + "/GPU-1.json", whole = *read_file(path);
  std::string flipped = whole;
  flipped.replace(flipped.find("300.0"), 5, "400.0");
  for (const std::string& spoilt : {std::string(), whole.substr(0, 40), flipped}) {
    put("GPU-1.json", spoilt);
    const auto left = *copied_.read(kLife);
    EXPECT_EQ(left.entries, std::vector<JournalEntry>{sample_entry()});
    EXPECT_TRUE(left.unusable.empty());
    EXPECT_EQ(left.notes.size(), 1u);
  }
  // Neither the file nor its copy is whole.
  std::ofstream(copies() + "/GPU-1.json") << "half";
  EXPECT_TRUE(copied_.read(kLife)->entries.empty());
  EXPECT_TRUE(copied_.read(kLife)->unusable.at(0).may_matter);
}

// The disk of the entry may not answer a process that restores one domain.
TEST_F(CopiedJournal, OneIsFoundByItsCopyOrByItsFile) {
  ASSERT_TRUE(copied_.write(sample_entry()).ok());
  const std::string path = folder() + "/GPU-1.json";
  ASSERT_EQ(::rename(path.c_str(), (path + "x").c_str()), 0);
  EXPECT_EQ(copied_.find(gpu_domain("GPU-1"), kLife), sample_entry());
  EXPECT_FALSE(copied_.find(gpu_domain("GPU-1"), {"boot-2", ""}));
  ASSERT_EQ(::rename((path + "x").c_str(), path.c_str()), 0);
  std::ofstream(copies() + "/GPU-1.json") << "half";
  EXPECT_EQ(copied_.find(gpu_domain("GPU-1"), kLife), sample_entry());
  EXPECT_FALSE(copied_.find(gpu_domain("GPU-2"), kLife));
}

TEST_F(CopiedJournal, AFolderInItsPlaceDoesNotStayInTheWay) {
  ASSERT_TRUE(copied_.write(sample_entry()).ok());
  const std::string path = folder() + "/GPU-1.json";
  fs::remove(path);
  fs::create_directories(path + "/inside");
  EXPECT_EQ(copied_.read(kLife)->entries.size(), 1u);
  EXPECT_TRUE(copied_.remove(gpu_domain("GPU-1")).ok());
  EXPECT_TRUE(copied_.read(kLife)->entries.empty());
  EXPECT_TRUE(fs::exists(path + ".aside"));
}

TEST_F(CopiedJournal, ACopyIsNeverAJournalOfItsOwnAndNoneIsNeeded) {
  ASSERT_TRUE(copied_.write(sample_entry()).ok());
  // A whole journal of another boot is not replaced by its copy.
  EXPECT_TRUE(copied_.read({"boot-2", ""})->entries.empty());
  fs::remove(folder() + "/GPU-1.json");
  EXPECT_TRUE(copied_.read(kLife)->entries.empty());
  const Journal without(folder(), "/proc/no/copies");
  EXPECT_TRUE(without.write(sample_entry()).ok());
  EXPECT_EQ(without.read(kLife)->entries.size(), 1u);
  EXPECT_TRUE(copied_.remove(gpu_domain("GPU-1")).ok());
  EXPECT_TRUE(fs::is_empty(copies()));
}

// Cut anywhere, a journal is unusable or whole: nothing in between is believed.
TEST_F(JournalTest, HalfAJournalIsNoJournal) {
  const std::string text = journal_text(sample_entry());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    put("GPU-1.json", text.substr(0, length));
    const auto left = *journal_.read(kLife);
    EXPECT_TRUE(left.entries.empty()) << length;
    EXPECT_EQ(left.unusable.size(), 1u) << length;
  }
}

TEST_F(JournalTest, ForeignAndStrangeFilesAreUnusable) {
  const std::string text = journal_text(sample_entry());
  put("GPU-2.json", text);  // another GPU's name
  put("target", text);
  fs::create_symlink(folder() + "/target", folder() + "/GPU-1.json");
  fs::create_directory(folder() + "/GPU-3.json");
  put("GPU-4.json", journal_text(sample_entry("GPU-4")));
  ::chmod((folder() + "/GPU-4.json").c_str(), 0666);
  put("GPU-5.json", journal_text(sample_entry("GPU-5")));
  put("notes.txt", "not a journal");
  const auto left = *journal_.read(kLife);
  ASSERT_EQ(left.entries.size(), 1u);
  EXPECT_EQ(left.entries[0].domain, gpu_domain("GPU-5"));
  EXPECT_EQ(left.unusable.size(), 4u);
}

// Root may give a file away, and believes only its own; a user believes root's, too.
TEST_F(JournalTest, AnotherUsersFileIsUnusableAndRootsIsNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files away, which root may";
  put("GPU-1.json", journal_text(sample_entry()));
  for (const std::string& path : {root_.path(), root_.file("state"), folder()})
    ::chmod(path.c_str(), 0755);
  const auto read = [this] {
    const auto left = *journal_.read(kLife);
    return std::to_string(left.entries.size()) + " of " +
           std::to_string(left.entries.size() + left.unusable.size());
  };
  EXPECT_EQ(as_user(kNobody, read), "1 of 1");
  ASSERT_EQ(::chown((folder() + "/GPU-1.json").c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(as_user(kNobody, read), "1 of 1");
  EXPECT_EQ(read(), "0 of 1");
}

TEST_F(JournalTest, ValuesOutsideWhatAGpuMayHaveAreRefused) {
  // As written by version 2, without a checksum.
  std::string plain = journal_text(sample_entry());
  plain.replace(plain.find("\"version\": 3"), 12, "\"version\": 2");
  const auto sum = plain.rfind(",\n");
  plain.erase(sum, plain.rfind('\n', plain.size() - 2) - sum);
  const auto changed = [&](const char* from, const char* to) {
    std::string text = plain;
    const auto at = text.find(from);
    CHECK(at != std::string::npos);
    return parse_journal(text.replace(at, std::string_view(from).size(), to));
  };
  ASSERT_TRUE(changed("300.0", "250.0").ok());
  for (const char* bad : {"-300.0", "0", "1e9", "\"300\"", "null", "1e999", "[300.0]", "[3, 2]"})
    EXPECT_FALSE(changed("300.0", bad).ok()) << bad;
  EXPECT_FALSE(changed("\"pid\": 17", "\"pid\": -1").ok());
  EXPECT_FALSE(changed("\"pid\": 17", "\"pid\": 99999999999").ok());
  EXPECT_FALSE(changed("\"written\": true", "\"written\": 1").ok());
  EXPECT_FALSE(changed("\"pid\": 17", "\"pid\": 17.5").ok());
  EXPECT_FALSE(changed("\"version\": 2", "\"version\": 4").ok());
  EXPECT_FALSE(changed("1700000000.0", "1e300").ok());
}

TEST_F(JournalTest, AUuidThatIsNoFileNameIsRefused) {
  for (const char* uuid : {"", "../GPU-1", "a/b", ".hidden", "a b", "a:b"}) {
    const auto written = journal_.write(sample_entry(uuid));
    ASSERT_FALSE(written.ok()) << uuid;
    EXPECT_EQ(written.error().code, Errc::invalid_argument);
  }
}

TEST_F(JournalTest, WhereNothingCanBeWrittenItSaysSo) {
  Journal nowhere("/proc/derate/journal");
  const auto written = nowhere.write(sample_entry());
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find("/proc/derate"), std::string::npos);
}

// As 0.1.0 wrote them: made by its program.
constexpr const char* kOfFirstVersion = R"({
  "version": 1,
  "uuid": "GPU-5bd4b4ce",
  "boot_id": "boot-1",
  "driver_load": "4711",
  "owner": "derated",
  "pid": 1234,
  "time_unix_seconds": 1761991200.5,
  "found": {
    "power_limit_watts": 412.5,
    "application_sm_clock_mhz": 1830.0,
    "application_memory_clock_mhz": 3201.0,
    "locked_lowest_mhz": 210.0,
    "locked_highest_mhz": 1200.0
  },
  "clock_written": true,
  "power_written": true
}
)";

TEST_F(JournalTest, OneOfTheFirstVersionIsRead) {
  put("GPU-5bd4b4ce.json", kOfFirstVersion);
  const auto left = *journal_.read(kLife);
  ASSERT_EQ(left.entries.size(), 1u);
  const JournalEntry& entry = left.entries[0];
  EXPECT_EQ(entry.domain, gpu_domain("GPU-5bd4b4ce"));
  EXPECT_EQ(entry.owner, "derated");
  EXPECT_EQ(entry.pid, 1234);
  EXPECT_EQ(entry.time, WallTime(std::chrono::milliseconds(1'761'991'200'500)));
  const decltype(entry.knobs) knobs = {{kClockLock, {KnobValue{210, 1200}, true}},
                                       {kPowerLimit, {one_value(412.5), true}},
                                       {kApplicationClock, {one_value(1830), false}},
                                       {kApplicationMemoryClock, {one_value(3201), false}}};
  EXPECT_EQ(entry.knobs, knobs);
  EXPECT_TRUE(journal_.write(entry).ok());  // it is handed on as one of this version
  EXPECT_EQ(journal_.read(kLife)->entries, std::vector<JournalEntry>{entry});
}

TEST_F(JournalTest, OneOfTheFirstVersionIsCheckedAsItWasThen) {
  const auto changed = [](const char* from, const char* to) {
    std::string text = kOfFirstVersion;
    const auto at = text.find(from);
    CHECK(at != std::string::npos);
    return parse_journal(text.replace(at, std::string_view(from).size(), to));
  };
  const auto lock = changed("    \"power_limit_watts\": 412.5,\n", "");
  ASSERT_TRUE(lock.ok());
  EXPECT_FALSE(lock->found(kPowerLimit));
  for (const char* bad : {"-300.0", "0", "1e9", "\"300\"", "null", "[300.0]"})
    EXPECT_FALSE(changed("412.5", bad).ok()) << bad;
  EXPECT_FALSE(changed("    \"locked_lowest_mhz\": 210.0,\n", "").ok());
  EXPECT_FALSE(changed("210.0", "1300.0").ok());
  EXPECT_FALSE(changed("\"clock_written\": true", "\"clock_written\": 1").ok());
  EXPECT_FALSE(changed("\"found\"", "\"lost\"").ok());
}

// A later version may have knobs and kinds that this one has not: they are kept as they are.
TEST_F(JournalTest, KnobsOfALaterVersionAreKept) {
  JournalEntry entry = sample_entry();
  entry.knobs["fan_ratio"] = {one_value(0), true};
  entry.domain = {"cpu", "package-0"};
  ASSERT_TRUE(journal_.write(entry).ok());
  EXPECT_TRUE(fs::exists(folder() + "/cpu:package-0.json"));
  EXPECT_EQ(journal_.read(kLife)->entries, std::vector<JournalEntry>{entry});
  // The GPUs' driver has loaded anew: that resets no other domain.
  EXPECT_EQ(journal_.read(BootIdentity{"boot-1", "4712"})->entries, std::vector{entry});
  EXPECT_TRUE(journal_.read(BootIdentity{"boot-2", "4711"})->entries.empty());
}

RC_GTEST_PROP(JournalProperty, TextComesBack, ()) {
  JournalEntry entry = sample_entry();
  entry.owner = *rc::gen::string<std::string>();
  for (char& c : entry.owner) c = static_cast<char>(c & 0x7f);  // owners are ASCII
  for (auto& [name, knob] : entry.knobs) knob.written = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) entry.knobs[kPowerLimit].found.reset();
  if (*rc::gen::arbitrary<bool>()) entry.knobs.erase(kApplicationMemoryClock);
  if (*rc::gen::arbitrary<bool>())
    entry.knobs[kApplicationClock].found = one_value(*rc::gen::inRange(1, 9999));
  if (*rc::gen::arbitrary<bool>()) entry.knobs[kClockLock].found = KnobValue{200, 1500};
  if (*rc::gen::arbitrary<bool>()) entry.domain = {"cpu", "package-1"};
  if (*rc::gen::arbitrary<bool>()) entry.pid_started = 4711;
  const auto back = parse_journal(journal_text(entry));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == entry);
}

TEST(BootIdentity, IsTheSameAsLongAsTheMachineRuns) {
  EXPECT_EQ(current_boot(), current_boot());
  EXPECT_EQ(current_boot().boot_id.size(), 36u);
}

}  // namespace
}  // namespace derate
