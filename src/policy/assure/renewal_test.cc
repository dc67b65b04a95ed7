#include "policy/assure/renewal.h"

#include <gtest/gtest.h>

#include <random>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kRead = 200ms;

// A counter in whole percents with noise, renewed at that interval.
class Source {
 public:
  explicit Source(Duration interval) : interval_(interval) {}
  SourceReading at(Instant time) {
    if (time >= due_) {
      due_ = time + interval_ - (time - due_) % interval_;
      shown_ = 0.5 + 0.01 * static_cast<double>(std::lround(noise_(random_)));
      ++renewals_;
    }
    return {0.97, shown_};
  }
  int renewals() const { return renewals_; }

 private:
  Duration interval_;
  Instant due_{};
  double shown_ = 0;
  int renewals_ = 0;
  std::mt19937_64 random_{11};
  std::normal_distribution<double> noise_{0, 1};
};

class Renewals : public testing::TestWithParam<Duration> {};

TEST_P(Renewals, EachIsOneReading) {
  Source source(GetParam());
  Renewal renewal;
  Instant now{};
  int counted = 0, before = 0;
  for (int i = 0; i < 2000; ++i) {
    now += kRead;
    const SourceReading reading = source.at(now);
    if (i == 200) counted = 0, before = source.renewals();  // it has learned
    counted += renewal.add(now, reading) ? 1 : 0;
  }
  ASSERT_TRUE(renewal.interval());
  const Duration shortest = GetParam() < kRead ? kRead : GetParam() / kRead * kRead;
  EXPECT_EQ(*renewal.interval(), shortest);
  // An equal reading that follows soon is taken for the same one: some are missed.
  const int renewals = std::min(1800, source.renewals() - before);
  EXPECT_LE(counted, renewals + 1);
  EXPECT_GE(counted, renewals * 0.7);
}

INSTANTIATE_TEST_SUITE_P(Intervals, Renewals, testing::Values(20ms, 167ms, 200ms, 500ms, 1s, 2s));

// Nothing is known of a source that rests; each of its readings counts.
TEST(Renewal, IsNotKnownOfReadingsThatRest) {
  Renewal renewal;
  for (int i = 1; i < 100; ++i)
    EXPECT_TRUE(renewal.add(Instant{} + i * kRead, SourceReading{1.0, 0.0}));
  EXPECT_FALSE(renewal.interval());
  EXPECT_FALSE(renewal.add(Instant{} + 100 * kRead, SourceReading{}));
}

}  // namespace
}  // namespace derate
