#include "terminal/time_axis.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <ctime>

#include "base/when.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

class TimeAxisTest : public testing::Test {
 protected:
  TimeAxisTest() { set_zone("Europe/Berlin"); }
  ~TimeAxisTest() override { set_zone("UTC"); }
  static void set_zone(const char* name) {
    ::setenv("TZ", name, 1);
    ::tzset();
  }
  static WallTime at(const char* text) { return *parse_when(text, {}); }
  static std::string labels(const char* from, const char* to, std::size_t width) {
    std::string out;
    for (const TimeTick& tick : time_ticks(at(from), at(to), width)) out += tick.label + "|";
    return out;
  }
};

TEST_F(TimeAxisTest, MarksStandAtRoundTimesOfTheClockOnTheWall) {
  EXPECT_EQ(labels("2026-11-01T06:00", "2026-11-01T12:00", 60),
            "06:00|07:00|08:00|09:00|10:00|11:00|");
  EXPECT_EQ(labels("2026-11-01T06:10", "2026-11-02T06:10", 60), "12:00|18:00|Nov 2|");
  EXPECT_EQ(labels("2026-11-01T12:00:00", "2026-11-01T12:01:00", 60),
            "12:00:00|12:00:15|12:00:30|12:00:45|");
  EXPECT_EQ(labels("2026-10-30", "2026-11-06", 70), "Oct 30|Oct 31|Nov 1|Nov 2|Nov 3|Nov 4|Nov 5|");
  EXPECT_EQ(labels("2026-01-01", "2027-01-01", 130),
            "2026-01|2026-02|2026-03|2026-04|2026-05|2026-06|2026-07|2026-08|2026-09|2026-10|"
            "2026-11|2026-12|");
}

// The day is an hour longer, and that hour's name comes twice.
TEST_F(TimeAxisTest, AnHourThatComesTwiceIsMarkedTwice) {
  EXPECT_EQ(labels("2026-10-25T00:00", "2026-10-25T05:00", 60),
            "Oct 25|01:00|02:00|02:00|03:00|04:00|");
  EXPECT_EQ(period_text(at("2026-10-25T00:00"), at("2026-10-25T05:00")),
            "2026-10-25 00:00 CEST to 2026-10-25 05:00 CET");
}

TEST_F(TimeAxisTest, AnHourThatNeverComesIsNotMarked) {
  EXPECT_EQ(labels("2026-03-29T00:00", "2026-03-29T06:00", 50), "Mar 29|01:00|03:00|04:00|05:00|");
}

TEST_F(TimeAxisTest, WhereHoursBeginAtHalfPastTheyAreThose) {
  set_zone("Asia/Kolkata");
  EXPECT_EQ(labels("2026-11-01T06:10", "2026-11-01T12:10", 60), "07:00|08:00|09:00|10:00|11:00|");
  EXPECT_EQ(period_text(at("2026-11-01T06:00"), at("2026-11-01T12:00")),
            "2026-11-01 06:00 to 12:00 IST");
  EXPECT_EQ(period_text(at("2026-11-01T06:00"), at("2026-11-01T06:01")),
            "2026-11-01 06:00:00 to 06:01:00 IST");
  EXPECT_EQ(at("2026-11-01T07:00"), at("2026-11-01T01:30Z"));
}

// Labels begin at their marks, and lines are as wide as they are to be.
RC_GTEST_PROP(TimeAxisProperty, EachLabelBeginsAtItsMark, ()) {
  for (const char* zone : {"Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "UTC"}) {
    ::setenv("TZ", zone, 1);
    ::tzset();
    const WallTime from{1s * *rc::gen::inRange<std::int64_t>(0, 4'000'000'000)};
    const auto length = *rc::gen::element<std::int64_t>(1, 59, 3600, 7 * 3600, 86400, 40 * 86400,
                                                        500 * 86400, 5 * 365 * 86400);
    const auto width = *rc::gen::inRange<std::size_t>(0, 200);
    const TimeAxis axis = time_axis(from, from + 1s * length, width, {.utf8 = false});
    RC_ASSERT(axis.marks.size() == width && axis.labels.size() == width);
    const auto ticks = time_ticks(from, from + 1s * length, width);
    for (const TimeTick& tick : ticks) {
      RC_ASSERT(axis.marks[tick.column] == '+');
      RC_ASSERT(axis.labels.substr(tick.column, tick.label.size()) == tick.label);
      if (tick.column > 0) RC_ASSERT(axis.labels[tick.column - 1] == ' ');
    }
    if (width >= 40) RC_ASSERT(length < 2 || !ticks.empty());
  }
  ::setenv("TZ", "UTC", 1);
  ::tzset();
}

}  // namespace
}  // namespace derate
