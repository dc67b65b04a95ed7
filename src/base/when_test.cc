#include "base/when.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <ctime>

namespace derate {
namespace {

using namespace std::chrono_literals;

// Berlin's clocks: an hour that never comes in March, one that comes twice in October.
class When : public testing::Test {
 protected:
  When() { set_zone("Europe/Berlin"); }
  ~When() override { set_zone("UTC"); }
  static void set_zone(const char* name) {
    ::setenv("TZ", name, 1);
    ::tzset();
  }
  static WallTime utc(const char* text) { return *parse_when(text, {}); }
};

TEST_F(When, ATimeIsLocalUnlessItSaysThatItIsNot) {
  EXPECT_EQ(*parse_when("2026-11-01T12:00", {}), utc("2026-11-01T11:00Z"));
  EXPECT_EQ(*parse_when("2026-07-01 12:00", {}), utc("2026-07-01T10:00Z"));
  EXPECT_EQ(*parse_when("2026-11-01", {}), utc("2026-10-31T23:00Z"));
}

TEST_F(When, AnHourThatComesTwiceIsTheFirstAndOneThatNeverComesTheChange) {
  EXPECT_EQ(*parse_when("2026-10-25T02:30", {}), utc("2026-10-25T00:30Z"));
  EXPECT_EQ(*parse_when("2026-03-29T02:30", {}), utc("2026-03-29T01:00Z"));
}

TEST_F(When, AgoIsOfTheTimeThatItIs) {
  const WallTime now = utc("2026-11-01T11:00Z");
  EXPECT_EQ(*parse_when("now", now), now);
  EXPECT_EQ(*parse_when("-90s", now), now - 90s);
  EXPECT_EQ(*parse_when("-7d", now), now - 7 * 24h);
  EXPECT_EQ(*parse_when("-2w", now), now - 14 * 24h);
}

TEST_F(When, ATimeMaySayHowFarAheadOfUtcItIs) {
  EXPECT_EQ(*parse_when("2026-10-25T02:30+02:00", {}), utc("2026-10-25T00:30Z"));
  EXPECT_EQ(*parse_when("2026-10-25T02:30+01:00", {}), utc("2026-10-25T01:30Z"));
  EXPECT_EQ(*parse_when("2026-10-25 02:30:30-05:30", {}), utc("2026-10-25T08:00:30Z"));
  EXPECT_EQ(*parse_when("@1761955200", {}), utc("2025-11-01T00:00Z"));
}

TEST_F(When, WordsMeanTheBeginningOfWhatIsNow) {
  const WallTime now = utc("2026-10-25T12:00Z");
  EXPECT_EQ(*parse_when("now-6h", now), now - 6h);
  EXPECT_EQ(*parse_when("today", now), utc("2026-10-24T22:00Z"));
  EXPECT_EQ(*parse_when("month", now), utc("2026-09-30T22:00Z"));
  EXPECT_EQ(*parse_when("12:59", now), utc("2026-10-25T11:59Z"));
  EXPECT_EQ(*parse_when("13:00:01", now), utc("2026-10-24T11:00:01Z")) << "yesterday's";
  EXPECT_EQ(zone_text(utc("2026-10-25T00:30Z")), "CEST");
  EXPECT_EQ(zone_text(utc("2026-10-25T01:30Z")), "CET");
}

TEST_F(When, WhatIsNoTimeIsAnsweredWithWhatIsAllowed) {
  for (const char* text : {"",
                           "-",
                           "-d",
                           "7d",
                           "-7y",
                           "-9999999d",
                           "2026-02-30",
                           "2026-1-1",
                           "2026-11-01T24:00",
                           "2026-11-01T12",
                           "2026-11-01T12:00:00:00",
                           "1969-12-31",
                           "tomorrow",
                           "2026-11-01Z",
                           "now-",
                           "now-7",
                           "now+1h",
                           "@",
                           "@-1",
                           "@1.5",
                           "2026-11-01T12:00+1:00",
                           "2026-11-01T12:00+16:00",
                           "2026-11-01+01:00"}) {
    const auto time = parse_when(text, {});
    ASSERT_FALSE(time.ok()) << text;
    EXPECT_EQ(time.error().code, Errc::invalid_argument);
    EXPECT_EQ(time.error().message.find("time '" + std::string(text) + "': allowed are"), 0u);
  }
}

TEST_F(When, AMonthBeginsAtMidnightHere) {
  EXPECT_EQ(month_begin(utc("2026-10-31T23:30Z")), utc("2026-10-31T23:00Z"));
  EXPECT_EQ(when_text(month_begin(utc("2026-07-15T00:00Z"))), "2026-07-01 00:00");
}

// Days of 23, 24 and 25 hours.
TEST_F(When, ADayEndsAtMidnightHere) {
  EXPECT_EQ(day_after(utc("2026-03-28T23:00Z")), utc("2026-03-29T22:00Z"));
  EXPECT_EQ(day_after(utc("2026-10-24T22:00Z")), utc("2026-10-25T23:00Z"));
  EXPECT_EQ(day_after(utc("2026-12-31T22:59Z")), utc("2026-12-31T23:00Z"));
  EXPECT_EQ(day_text(utc("2026-12-31T23:00Z")), "2027-01-01");
}

RC_GTEST_PROP(WhenProperty, WhatIsWrittenIsReadAgain, ()) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const auto minutes = *rc::gen::inRange<std::int64_t>(0, 60LL * 24 * 365 * 130);
  const WallTime time{std::chrono::minutes(minutes)};
  RC_ASSERT(*parse_when(when_text(time), {}) == time);
  RC_ASSERT(*parse_when(utc_text(time + 7s), {}) == time + 7s);
  RC_ASSERT(second_text(time + 7s) == when_text(time) + ":07");
}

}  // namespace
}  // namespace derate
