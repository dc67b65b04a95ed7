#include "govern/restore_settings.h"

#include <gtest/gtest.h>

#include "govern/test_control.h"

namespace derate {
namespace {

using namespace literals;
using Calls = std::vector<std::string>;

JournalEntry written(decltype(JournalEntry::knobs) knobs) {
  JournalEntry out;
  out.domain = gpu_domain("GPU-1");
  out.knobs = std::move(knobs);
  return out;
}

TEST(RestoreSettings, OnlyWhatWasWrittenInTheOrderOfTheRows) {
  TestControl control;
  control.now.power_limit = 200_W;
  JournalEntry entry = written({{kPowerLimit, {one_value(300), true}},
                                {kApplicationClock, {one_value(1530), false}},
                                {kClockLock, {{}, true}}});
  EXPECT_TRUE(restore_settings(control, entry).ok());
  EXPECT_EQ(control.calls, (Calls{"reset", "300 W"}));
  EXPECT_FALSE(entry.any_written());
}

// Earlier versions did not always check the clocks of [found], and journals outlive versions.
TEST(RestoreSettings, AConfiguredLockThatTheGpuRefusesIsReset) {
  struct Picky : ClockControl {
    Result<void> lock_sm_clock(Megahertz, Megahertz) override {
      return Error{Errc::invalid_argument, "1000 MHz is not a supported clock"};
    }
    Result<void> reset_sm_clock() override { return ++resets, Result<void>{}; }
    Result<void> set_power_limit(Watts) override {
      return Error{Errc::invalid_argument, "300 W: takes 100 to 200 W"};
    }
    Result<GpuSettings> settings() override { return GpuSettings{}; }
    int resets = 0;
  } control;
  JournalEntry entry = written({{kClockLock, {KnobValue{1000, 1500}, true}}});
  EXPECT_TRUE(restore_settings(control, entry).ok());
  EXPECT_EQ(control.resets, 1);
  EXPECT_FALSE(entry.any_written());
  // A setting that was read before the first write is not from the configuration: its error is
  // returned.
  entry = written({{kPowerLimit, {one_value(300), true}}});
  EXPECT_FALSE(restore_settings(control, entry).ok());
}

TEST(RestoreSettings, WhatFailsStaysMarkedAndKeepsNoOther) {
  TestControl control;
  JournalEntry entry = written({{"fan_ratio", {one_value(1), true}},
                                {kApplicationClock, {one_value(1530), true}},
                                {kClockLock, {KnobValue{210, 1200}, true}}});
  const auto done = restore_settings(control, entry);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("application clock"), std::string::npos);
  EXPECT_NE(done.error().message.find("fan_ratio"), std::string::npos);
  EXPECT_EQ(control.calls, Calls{"210..1200"});
  EXPECT_FALSE(entry.is_written(kClockLock));
  EXPECT_TRUE(entry.is_written(kApplicationClock));
  EXPECT_TRUE(entry.is_written("fan_ratio"));
}

}  // namespace
}  // namespace derate
