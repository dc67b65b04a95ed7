#include "policy/assure/standstill.h"

#include <gtest/gtest.h>

#include <random>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 200ms;

SourceReading of(int gpu, int memory) { return {gpu / 100.0, memory / 100.0}; }

// Readings of whole percents about a level, each of them new.
class Noisy {
 public:
  explicit Noisy(double sd) : noise_(0, sd) {}
  SourceReading at(double level) {
    return of(97 + draw(), static_cast<int>(std::lround(level)) + draw());
  }

 private:
  int draw() { return static_cast<int>(std::lround(noise_(random_))); }
  std::mt19937_64 random_{7};
  std::normal_distribution<double> noise_;
};

class StandstillTest : public testing::Test {
 protected:
  bool add(const SourceReading& reading) {
    now_ += kTick;
    return watch_.add(now_, reading);
  }
  // How many of `n` equal readings pass before it is noticed.
  int passed(const SourceReading& reading, int n) {
    int out = 0;
    for (int i = 0; i < n; ++i) out += add(reading) ? 0 : 1;
    return out;
  }

  Standstill watch_;
  Instant now_{};
};

TEST_F(StandstillTest, ASourceThatAlwaysMovesIsHeardUntilItStands) {
  Noisy noisy(1);
  int stood = 0;
  for (int i = 0; i < 3000; ++i) stood += add(noisy.at(50)) ? 1 : 0;
  EXPECT_LE(stood, 3);
  EXPECT_LE(passed(of(97, 50), 25), 5);
  EXPECT_FALSE(add(noisy.at(60)) && add(noisy.at(60)));
}

// Whole percents of work that is bound elsewhere, without noise.
TEST_F(StandstillTest, ASourceThatRestsIsHeardWhileTheClockRests) {
  EXPECT_EQ(passed(of(100, 57), 1000), 1000);
}

TEST_F(StandstillTest, WhatIsAsBeforeTheClockMovedIsOfBefore) {
  Noisy noisy(1);
  for (int i = 0; i < 100; ++i) add(noisy.at(50));
  const SourceReading last = noisy.at(50);
  add(last);
  watch_.moved();
  EXPECT_TRUE(add(last));
  EXPECT_TRUE(add(last));
  EXPECT_FALSE(add(noisy.at(40)));
}

// A counter that has rested for longer than counters stand still is one that rests.
TEST_F(StandstillTest, AnIntegerThatStaysBecauseWorkIsBoundElsewhereIsEvidenceInTheEnd) {
  for (int i = 0; i < 5; ++i) add(of(100, 57));
  watch_.moved();
  const int ticks = static_cast<int>(8s / kTick);
  EXPECT_NEAR(passed(of(100, 57), 2 * ticks), ticks, 6);
  watch_.moved();
  EXPECT_FALSE(add(of(100, 57)));
}

TEST_F(StandstillTest, NoReadingSaysNothing) {
  EXPECT_FALSE(add({}));
  add(of(50, 50));
  watch_.moved();
  EXPECT_TRUE(add(of(50, 50)));
  EXPECT_TRUE(add({}));
  EXPECT_FALSE(add(of(50, 49)));
  EXPECT_FALSE(add({}));
}

}  // namespace
}  // namespace derate
