#include "device/replay/replay_device.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// 0, 50, 100 ms, then a gap up to 1 s; energy in the first row, counters in the second.
Trace short_trace() {
  Trace trace;
  trace.capability.process_list = true;
  for (const Duration t : {0ms, 50ms, 100ms, 1000ms}) {
    Sample sample;
    sample.time = Instant(t);
    sample.sm_clock = Megahertz(1000 + seconds(t));
    trace.samples.push_back(sample);
  }
  trace.samples[0].energy = 7_J;
  trace.samples[0].tenants = 2;
  trace.samples[1].activity.sm = Fraction(0.5);
  return trace;
}

class ReplayDeviceTest : public testing::Test {
 protected:
  ReplayDeviceTest() {
    clock_.advance(100s);
    device_.emplace(short_trace(), clock_);
  }
  Sample read(const ReadPlan& plan = {}) {
    const auto sample = device_->read(plan);
    EXPECT_TRUE(sample.ok());
    return sample ? *sample : Sample{};
  }
  FakeClock clock_;
  std::optional<ReplayDevice> device_;
};

TEST_F(ReplayDeviceTest, GivesTheNewestSampleOnTheGovernorsClock) {
  EXPECT_EQ(device_->duration(), 1s);
  EXPECT_EQ(read().time, Instant(100s));
  EXPECT_EQ(read().source, SampleSource::replayed);
  clock_.advance(49ms);
  EXPECT_EQ(read().time, Instant(100s));
  clock_.advance(1ms);
  EXPECT_EQ(read().time, Instant(100s + 50ms));
  EXPECT_EQ(read().sm_clock, Megahertz(1000.05));
}

TEST_F(ReplayDeviceTest, AGapShowsAsASampleThatGrowsOld) {
  clock_.advance(999ms);
  EXPECT_EQ(read().time, Instant(100s + 100ms));
  clock_.advance(1ms);
  EXPECT_EQ(read().time, Instant(101s));
}

TEST_F(ReplayDeviceTest, EndsWithTheTrace) {
  clock_.advance(1s);
  EXPECT_TRUE(device_->read({}).ok());
  clock_.advance(1ns);
  const auto sample = device_->read({});
  ASSERT_FALSE(sample.ok());
  EXPECT_EQ(sample.error().code, Errc::not_found);
  EXPECT_EQ(sample.error().message, "the trace ends after 1.000 s");
  ReplayDevice empty(Trace{}, clock_);
  EXPECT_EQ(empty.read({}).error().code, Errc::not_found);
}

TEST_F(ReplayDeviceTest, ReadsOnlyWhatIsPlanned) {
  clock_.advance(50ms);
  EXPECT_EQ(read({.energy = false, .activity = true}).energy, std::nullopt);
  EXPECT_EQ(read({.energy = false, .activity = true}).activity.sm, Fraction(0.5));
  EXPECT_EQ(read({.energy = true, .activity = false}).energy, 7_J);
  EXPECT_EQ(read({.energy = true, .activity = false}).activity, Activity{});
  EXPECT_EQ(read().tenants, 2);
  EXPECT_EQ(read({.processes = false}).tenants, std::nullopt);
}

TEST_F(ReplayDeviceTest, KeepsTheEnergyCounterAndActivityForItsWindow) {
  EXPECT_EQ(read().activity, Activity{});
  clock_.advance(100ms);
  EXPECT_EQ(read().energy, 7_J);
  EXPECT_EQ(read().activity.sm, Fraction(0.5));  // 50 ms old
  EXPECT_EQ(read_of(read(), Field::energy).taken, Instant(100s));
  EXPECT_EQ(read_of(read(), Field::activity).taken, Instant(100s + 50ms));
  EXPECT_EQ(read_of(read(), Field::sm_clock).taken, Instant(100s + 100ms));
  clock_.advance(900ms);
  EXPECT_EQ(read().energy, 7_J);
  EXPECT_EQ(read().activity, Activity{});  // 950 ms old
}

TEST_F(ReplayDeviceTest, SkippingRowsLosesNoCounter) {
  clock_.advance(100ms);
  const Sample sample = read();
  EXPECT_EQ(sample.energy, 7_J);
  EXPECT_EQ(sample.activity.sm, Fraction(0.5));
}

TEST_F(ReplayDeviceTest, HasNoProcesses) {
  EXPECT_EQ(device_->processes().error().code, Errc::not_supported);
  EXPECT_FALSE(device_->capability().process_list);
}

}  // namespace
}  // namespace derate
