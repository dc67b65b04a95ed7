// A recording of a real H200 (tests/fixtures/h200.trace, docs/real-gpu.md), read and replayed.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/replay/replay_device.h"
#include "device/replay/trace_reader.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "policy/registry/registry.h"
#include "telemetry/energy_meter.h"

namespace derate {
namespace {

Trace h200() {
  auto trace = read_trace(std::string(DERATE_SOURCE_DIR) + "/tests/fixtures/h200.trace");
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return *std::move(trace);
}

// A labelled stretch of work, without the 2 s at each end in which the load changes.
struct Window {
  std::string label;
  Instant begin, end;
};

std::vector<Window> steady_windows(const Trace& trace) {
  std::vector<Window> out;
  for (std::size_t i = 0; i + 1 < trace.labels.size(); ++i)
    if (trace.labels[i].text != "idle")
      out.push_back({trace.labels[i].text, trace.labels[i].time + std::chrono::seconds(2),
                     trace.labels[i + 1].time - std::chrono::seconds(2)});
  return out;
}

TEST(H200Trace, IsWhole) {
  const Trace trace = h200();
  EXPECT_EQ(trace.samples.size(), 1180u);
  EXPECT_EQ(steady_windows(trace).size(), 7u);
  EXPECT_TRUE(trace.notes.empty());
  EXPECT_EQ(trace.capability.sm_clocks.size(), 110u);
  for (const Sample& sample : trace.samples) {
    EXPECT_TRUE(sample.power_instant && sample.power_average && sample.sm_clock);
    // On Hopper nvmlDeviceGetPowerUsage is field 185.
    EXPECT_EQ(sample.power_usage, sample.power_average);
  }
}

// Field 185 is the mean of the second before it, so that its mean over a window that begins and
// ends in steady load is the counter's.
TEST(H200Trace, AveragedPowerAgreesWithTheEnergyCounter) {
  const Trace trace = h200();
  for (const Window& window : steady_windows(trace)) {
    std::vector<const Sample*> counted;
    for (const Sample& s : trace.samples)
      if (s.energy && s.time >= window.begin && s.time <= window.end) counted.push_back(&s);
    ASSERT_GE(counted.size(), 6u) << window.label;
    const Sample &first = *counted.front(), &last = *counted.back();
    const Watts by_counter = (*last.energy - *first.energy) / (last.time - first.time);
    double sum = 0;
    int n = 0;
    for (const Sample& s : trace.samples)
      if (s.time >= first.time && s.time <= last.time) sum += s.power_average->value(), ++n;
    EXPECT_NEAR(sum / n / by_counter.value(), 1, 0.01) << window.label;
  }
}

TEST(H200Trace, EnergyMeterAgreesWithItsOwnIntegral) {
  EnergyMeter meter;
  for (const Sample& sample : h200().samples) meter.add(sample);
  ASSERT_TRUE(meter.total() && meter.integrated());
  EXPECT_TRUE(meter.from_counter());
  EXPECT_NEAR(*meter.integrated() / *meter.total(), 1, 0.01);
}

struct Replayed {
  std::vector<Decision> decisions;
  int failures = 0;
  std::size_t periods = 0;  // of the policy, from the trace's begin to its end
};

Replayed replay(const char* policy) {
  FakeClock clock;
  ReplayDevice device(h200(), clock);
  const PolicyInfo* info = *find_policy(policy);
  const Envelope envelope = *make_envelope(device.capability());
  const ParamValues params = default_params(info->params);
  const PolicySetup setup = policy_setup(device.capability(), envelope, params);
  std::vector<GovernedGpu> gpus;
  gpus.push_back({&device, nullptr, *info->create(setup), info->as_published, envelope});
  Governor governor(std::move(gpus), clock);
  Replayed out;
  out.periods = static_cast<std::size_t>(device.duration() / policy_tick(params)) + 1;
  for (Instant next = clock.now(); next.time_since_epoch() <= device.duration();
       next += policy_tick(params)) {
    clock.sleep_until(next);
    for (const Record& record : governor.tick()) {
      out.decisions.push_back(record.decision);
      out.failures += record.sample ? 0 : 1;
      EXPECT_NE(record.actuation.outcome, Actuation::Outcome::written);
      if (record.decision.kind == Decision::Kind::set) {
        EXPECT_GE(record.decision.clock, envelope.lowest());
      }
    }
  }
  return out;
}

TEST(H200Trace, DrivesTheLoopUnderEveryPolicy) {
  for (const PolicyInfo& info : policies()) {
    const Replayed replayed = replay(info.name);
    EXPECT_EQ(replayed.failures, 0) << info.name;
    EXPECT_EQ(replayed.decisions.size(), replayed.periods) << info.name;
  }
  EXPECT_EQ(replay("geepafs").periods, 590u);
}

// 118 s are seven periods of 17 s less a second: seven probes of ten set ticks (eight, one that
// holds, one that applies) have begun, at ticks 0, 85, ..., and only the idle test can leave one
// out.
TEST(H200Trace, GeepafsProbesEvery85Ticks) {
  const Replayed replayed = replay("geepafs");
  std::vector<std::size_t> sets;
  for (std::size_t i = 0; i < replayed.decisions.size(); ++i)
    if (replayed.decisions[i].kind == Decision::Kind::set) sets.push_back(i);
  EXPECT_EQ(sets.size() % 10, 0u);
  EXPECT_GE(sets.size(), 50u);
  for (std::size_t i = 10; i < sets.size(); i += 10) EXPECT_GE(sets[i] - sets[i - 10], 85u);
}

TEST(H200Trace, ReplayIsDeterministic) {
  EXPECT_EQ(replay("geepafs").decisions, replay("geepafs").decisions);
}

}  // namespace
}  // namespace derate
