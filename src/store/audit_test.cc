#include "store/audit.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/clock.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

class AuditTest : public testing::Test {
 protected:
  const Folder folder_;
  const std::string path_ = folder_.file("state/audit.jsonl");
  AuditEntry entry_{WallTime(std::chrono::seconds(1'700'000'000)),
                    "derated, pid 17",
                    gpu_domain("GPU-1"),
                    "lock",
                    "1530 MHz",
                    "952 MHz",
                    "a \"reason\"\nof two lines",
                    ""};
};

TEST_F(AuditTest, OnAThreadTheEndWaitsForWhatIsStillToBeWritten) {
  {
    const AuditLog log = AuditLog::on_a_thread(path_);
    const AuditLog copy = log;
    for (int i = 0; i < 50; ++i) ASSERT_TRUE((i % 2 == 0 ? log : copy).append(entry_).ok());
  }
  const std::string text = *read_file(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 50);
}

// A pipe without a reader blocks its writer in open(), like a disk that hangs.
TEST_F(AuditTest, OnAThreadADiskThatHangsIsNotWaitedFor) {
  const std::string path = folder_.file("audit.jsonl");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  {
    const AuditLog log = AuditLog::on_a_thread(path);
    for (std::size_t i = 0; i < AuditLog::kMostWaiting; ++i)
      ASSERT_TRUE(log.append(entry_).ok()) << i;
    const auto refused = log.append(entry_);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("does not answer"), std::string::npos);
  }
  // The thread continues with the next entry, and blocks in open() again until this process ends.
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

TEST_F(AuditTest, OnAThreadAFailureIsThatOfAnEntryBefore) {
  const AuditLog log = AuditLog::on_a_thread("/proc/no/audit.jsonl");
  Result<void> last;
  for (int i = 0; i < 2000 && last.ok(); ++i) {
    last = log.append(entry_);
    SystemClock clock;
    clock.sleep_until(clock.now() + std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(last.ok());
}

TEST_F(AuditTest, EachEntryIsALineOfItsOwn) {
  const AuditLog log(path_);
  ASSERT_TRUE(log.append(entry_).ok());
  ASSERT_TRUE(log.append(entry_).ok());
  const std::string text = *read_file(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  const auto json = parse_json(text.substr(0, text.find('\n')));
  EXPECT_EQ(json["uuid"], "GPU-1");
  EXPECT_EQ(json["before"], "1530 MHz");
  EXPECT_EQ(json["why"], "a \"reason\"\nof two lines");
  EXPECT_FALSE(json.contains("error"));
}

TEST_F(AuditTest, WhatItIsAbout) {
  entry_.domain = {};  // a command, a token
  EXPECT_EQ(parse_json(audit_line(entry_))["uuid"], "");
  EXPECT_FALSE(parse_json(audit_line(entry_)).contains("domain"));
  entry_.domain = {"cpu", "package-0"};
  EXPECT_EQ(parse_json(audit_line(entry_))["domain"], "cpu:package-0");
  EXPECT_FALSE(parse_json(audit_line(entry_)).contains("uuid"));
}

TEST_F(AuditTest, ItDoesNotGrowForEver) {
  const AuditLog log(path_, 1000);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(log.append(entry_).ok());
  EXPECT_LT(read_file(path_)->size(), 1300u);
  EXPECT_LT(read_file(path_ + ".1")->size(), 1300u);
}

TEST_F(AuditTest, WhereNothingCanBeWrittenItSaysSo) {
  const auto kept = AuditLog("/proc/derate/audit").append(entry_);
  ASSERT_FALSE(kept.ok());
  EXPECT_NE(kept.error().message.find("/proc/derate"), std::string::npos);
}

}  // namespace
}  // namespace derate
