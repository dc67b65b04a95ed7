#include "duties.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "base/number.h"

namespace derate::agent {
namespace {

using namespace std::chrono_literals;

// Whoever asks when: derated is asked once a second at most, and what is shown is never older than
// kUsable.
RC_GTEST_PROP(CachedPage, AsksOnceASecondAndShowsNothingOld, ()) {
  FakeClock clock;
  std::vector<Instant> asked;
  CachedPage page(
      [&]() -> Result<HttpResponse> {
        asked.push_back(clock.now());
        return HttpResponse{.status = 200, .body = std::to_string(asked.size())};
      },
      std::make_shared<Answers>(), clock, BackgroundWorker::Where::at_once);
  for (int i = *rc::gen::inRange(1, 60); i > 0; --i) {
    clock.advance(
        std::chrono::milliseconds(*rc::gen::elementOf(std::vector{0, 1, 400, 999, 3000})));
    if (const auto shown = page.ask(7)) {
      const auto of = asked.at(*parse_number<std::size_t>(shown->body) - 1);
      RC_ASSERT(clock.now() - of < CachedPage::kUsable);
    }
    RC_ASSERT(!asked.empty() && clock.now() - asked.back() < CachedPage::kFresh);
  }
  for (std::size_t i = 1; i < asked.size(); ++i)
    RC_ASSERT(asked[i] - asked[i - 1] >= CachedPage::kFresh);
}

TEST(CachedPage, ADaemonThatIsAwayIsAskedOnceASecond) {
  FakeClock clock;
  int asked = 0;
  CachedPage page(
      [&]() -> Result<HttpResponse> {
        ++asked;
        return Error{Errc::not_found, "derated is not running"};
      },
      std::make_shared<Answers>(), clock, BackgroundWorker::Where::at_once);
  EXPECT_FALSE(page.ask(1));
  const auto shown = page.ask(2);
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->status, 503);
  EXPECT_EQ(find_field(shown->fields, "Retry-After"), "1");
  EXPECT_NE(shown->body.find("derated is not running"), std::string::npos);
  EXPECT_EQ(asked, 1);
}

TEST(ForwardPool, TakesNoMoreThanItsBound) {
  FakeClock clock;
  ForwardPool pool(clock, 0);
  for (std::size_t i = 0; i < ForwardPool::kMostWaiting; ++i)
    EXPECT_TRUE(pool.put([](Duration) {}));
  EXPECT_FALSE(pool.put([](Duration) {}));
}

TEST(Unavailable, SaysWhetherToTryAgain) {
  EXPECT_EQ(unavailable({Errc::gpu_stuck, "x"}).status, 503);
  EXPECT_EQ(unavailable({Errc::no_permission, "x"}).status, 502);
  EXPECT_FALSE(find_field(unavailable({Errc::io, "x"}).fields, "Retry-After"));
}

}  // namespace
}  // namespace derate::agent
