#include "store/audit.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "base/test_folder.h"
#include "base/text.h"

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
