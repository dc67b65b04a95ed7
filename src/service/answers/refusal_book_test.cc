#include "service/answers/refusal_book.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

class Refusals : public testing::Test {
 protected:
  // The lines that were added to the audit log since the last call.
  std::vector<std::string> lines() {
    const auto text = read_file(path_);
    std::vector<std::string> out;
    if (text.ok())
      for (const auto line : split(*text, '\n'))
        if (!line.empty()) out.emplace_back(line);
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(seen_));
    seen_ += out.size();
    return out;
  }

  Folder folder_;
  std::string path_ = folder_.file("audit.log");
  FakeClock clock_;
  RefusalBook book_{AuditLog(path_), Log()};

 private:
  std::size_t seen_ = 0;
};

TEST_F(Refusals, TheFirstIsWrittenAtOnceAndTheOthersAreCounted) {
  book_.add("client.sock", "uid 990", "the agent's user");
  book_.write(clock_);
  const auto first = lines();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_NE(first[0].find(R"("what":"refused")"), std::string::npos) << first[0];
  EXPECT_NE(first[0].find("client.sock, uid 990: the agent's user, 1 times"), std::string::npos);
  for (int i = 0; i < 1000; ++i) {
    book_.add("client.sock", "uid 990", "the agent's user");
    book_.write(clock_);
  }
  EXPECT_EQ(lines().size(), 0u);
  clock_.advance(RefusalBook::kEvery);
  book_.write(clock_);
  const auto then = lines();
  ASSERT_EQ(then.size(), 1u);
  EXPECT_NE(then[0].find("1000 times"), std::string::npos) << then[0];
}

// A caller has one row per door, for all its reasons. Other callers have their own rows.
TEST_F(Refusals, ACallerTakesOneRow) {
  for (int i = 0; i < 100; ++i) book_.add("api.sock", "uid 1001", "operation " + std::to_string(i));
  book_.add("api.sock", "uid 1002", "status wants more");
  book_.write(clock_);
  const auto written = lines();
  ASSERT_EQ(written.size(), 2u);
  EXPECT_NE(written[0].find("api.sock, uid 1001: operation 0, 100 times"), std::string::npos)
      << written[0];
  EXPECT_NE(written[1].find("uid 1002: status wants more"), std::string::npos) << written[1];
}

TEST_F(Refusals, HoweverManyCallersComeTheLogHasABoundedNumberOfLines) {
  for (int i = 0; i < 100'000; ++i) {
    book_.add("api.sock", "uid " + std::to_string(i), "no");
    if (i % 100 == 0) {
      clock_.advance(std::chrono::milliseconds(100));
      book_.write(clock_);
    }
  }
  clock_.advance(RefusalBook::kEvery);
  book_.write(clock_);
  EXPECT_LE(lines().size(), 2 * (RefusalBook::kMost + 1));
  book_.write(clock_);
  // Expired rows make room for other callers.
  clock_.advance(RefusalBook::kEvery);
  book_.write(clock_);
  book_.add("beat.sock", "uid 7", "no");
  book_.write(clock_);
  const auto last = lines();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_NE(last[0].find("uid 7"), std::string::npos);
}

}  // namespace
}  // namespace derate
