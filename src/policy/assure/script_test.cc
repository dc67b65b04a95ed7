#include "policy/assure/script.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;
using Work = Script::Work;

class Scripted : public ::testing::Test {
 protected:
  Work tick(Duration time, bool busy, bool launching = false) {
    now_ += time;
    Estimate estimate;
    estimate.time = now_;
    estimate.gpu_utilisation = Fraction(busy ? 1 : 0);
    estimate.launching = launching;
    const Work out = script_.work_at(estimate);
    script_.last = now_;
    return out;
  }
  Instant now_ = Instant{} + 100s;
  Script script_;
};

TEST_F(Scripted, AJobBeginsWithItsFirstKernelsAndAgainAfterAWhileWithoutAny) {
  EXPECT_EQ(tick(200ms, true), Work::begins);
  EXPECT_EQ(tick(200ms, true), Work::goes_on);
  EXPECT_EQ(tick(100ms, false), Work::pauses);
  EXPECT_EQ(tick(200ms, false), Work::rests);
  EXPECT_EQ(tick(200ms, true), Work::goes_on);
  EXPECT_EQ(tick(200ms, false), Work::pauses);
  EXPECT_EQ(tick(2100ms, false), Work::has_ended);
  EXPECT_EQ(tick(200ms, true), Work::begins);
}

TEST_F(Scripted, LaunchesAreWorkWhateverCountersShow) {
  EXPECT_EQ(tick(200ms, false, true), Work::begins);
  EXPECT_EQ(tick(200ms, false, true), Work::goes_on);
}

TEST_F(Scripted, WorkThatAnotherGovernedMeanwhileIsBegunInItsMidst) {
  tick(200ms, true);
  script_.anew = true;
  EXPECT_EQ(tick(200ms, true), Work::begins);
  EXPECT_TRUE(script_.anew);
  tick(200ms, false);
  tick(3s, false);
  EXPECT_FALSE(script_.anew);  // it has ended before it was begun with
}

TEST_F(Scripted, ATickStandsForTheTimeSinceTheOneBefore) {
  EXPECT_EQ(script_.time_of_tick(now_), Duration{});
  tick(200ms, true);
  EXPECT_EQ(script_.time_of_tick(now_ + 300ms), 300ms);
  EXPECT_EQ(script_.time_of_tick(now_ + 2100ms), std::nullopt);
}

TEST_F(Scripted, ARequestIsTimedWhenItIsOfAnotherClock) {
  tick(200ms, true);
  EXPECT_TRUE(script_.request(Megahertz(1500), true));
  const Instant at = now_;
  tick(200ms, true);
  EXPECT_FALSE(script_.request(Megahertz(1500), false));
  EXPECT_EQ(script_.asked.at, at);
  EXPECT_FALSE(script_.asked.probing);
}

// Jobs of one program that follow each other at once: another process, another job.
TEST(Script, AnotherProcessThatCountsBeginsAJob) {
  Script script;
  Estimate estimate;
  estimate.gpu_utilisation = Fraction(1);
  const auto at = [&](std::uint64_t process) {
    script.last = estimate.time;
    estimate.time += std::chrono::milliseconds(200);
    estimate.work.progress = Progress{.process = process};
    return script.work_at(estimate);
  };
  EXPECT_EQ(at(1), Script::Work::goes_on);
  EXPECT_EQ(at(1), Script::Work::goes_on);
  EXPECT_EQ(at(0), Script::Work::goes_on);  // not known
  EXPECT_EQ(at(2), Script::Work::begins);
  EXPECT_EQ(at(2), Script::Work::goes_on);
}

}  // namespace
}  // namespace derate
