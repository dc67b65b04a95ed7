#include "base/forked_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <chrono>

namespace derate {
namespace {

using namespace std::chrono_literals;

RC_GTEST_PROP(ForkedText, IsThatOfTheFunctionWhateverItIs, (const std::string& text, bool good)) {
  SystemClock clock;
  const auto work = [&]() -> Result<std::string> {
    if (good) return text;
    return Error{Errc::driver_not_loaded, text};
  };
  auto forked = fork_text(work);
  RC_ASSERT(forked.ok());
  const auto out = text_of(*forked, 10s, clock);
  RC_ASSERT(out.ok() == good);
  if (good) RC_ASSERT(*out == text);
  if (!good) RC_ASSERT(out.error().code == Errc::driver_not_loaded);
  if (!good) RC_ASSERT(out.error().message == text);
}

TEST(ForkedText, MayBeLongerThanAPipeHolds) {
  SystemClock clock;
  const std::string text(1 << 20, 'x');
  auto forked = fork_text([&] { return Result<std::string>(text); });
  ASSERT_TRUE(forked.ok());
  const auto out = text_of(*forked, 30s, clock);
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(*out, text);
}

TEST(ForkedText, AFunctionThatHangsIsKilled) {
  SystemClock clock;
  const Instant begun = clock.now();
  auto forked = fork_text([] {
    for (;;) ::pause();
    return Result<std::string>("");
  });
  ASSERT_TRUE(forked.ok());
  EXPECT_EQ(text_of(*forked, 100ms, clock).error().code, Errc::gpu_stuck);
  EXPECT_LT(clock.now() - begun, 10s);
}

TEST(ForkedText, AProcessThatEndsWithoutOneIsAnError) {
  SystemClock clock;
  auto forked = fork_text([]() -> Result<std::string> { ::_exit(7); });
  ASSERT_TRUE(forked.ok());
  EXPECT_EQ(text_of(*forked, 10s, clock).error().code, Errc::bad_data);
}

}  // namespace
}  // namespace derate
