#include "telemetry/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace derate {
namespace {

using namespace std::chrono_literals;

// Answers every read at once and remembers what was asked.
class FakeSource final : public TelemetrySource {
 public:
  explicit FakeSource(Clock& clock) : clock_(clock) {}
  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan& plan) override {
    plans.push_back(plan);
    if (broken) return Error{Errc::query_failed, "the reading failed"};
    Sample sample;
    sample.time = clock_.now() - age;
    sample.power_usage = Watts(static_cast<double>(plans.size()));
    if (extra) extra(sample);
    return sample;
  }
  Result<std::vector<GpuProcess>> processes() override { return std::vector<GpuProcess>{}; }
  std::shared_ptr<const DriverCosts> costs() const override { return cost; }

  std::shared_ptr<DriverCosts> cost;  // null: nothing
  std::vector<ReadPlan> plans;
  bool broken = false;
  Duration age{};
  std::function<void(Sample&)> extra;

 private:
  Clock& clock_;
  Capability capability_;
};

class SamplerTest : public testing::Test {
 protected:
  // The times, in ms, of the ticks at which the expensive fields were read.
  struct Reads {
    std::vector<int> energy, activity, processes;
  };
  Reads run(const std::vector<int>& ticks_ms) {
    Reads out;
    for (const int at : ticks_ms) {
      clock_.sleep_until(Instant(std::chrono::milliseconds(at)));
      (void)sampler_.sample();
      if (source_.plans.back().energy) out.energy.push_back(at);
      if (source_.plans.back().activity) out.activity.push_back(at);
      if (source_.plans.back().processes) out.processes.push_back(at);
    }
    return out;
  }
  std::vector<int> every(int step_ms, int end_ms) {
    std::vector<int> out;
    for (int at = 0; at < end_ms; at += step_ms) out.push_back(at);
    return out;
  }
  FakeClock clock_;
  FakeSource source_{clock_};
  Sampler sampler_{source_, clock_};
};

TEST_F(SamplerTest, ReadsEnergyAndProcessesOnceASecondAndActivityEvery200Ms) {
  const auto reads = run(every(50, 3000));
  EXPECT_EQ(reads.energy, (std::vector{0, 900, 1900, 2900}));  // a tenth early is on time
  EXPECT_EQ(reads.activity, every(200, 3000));
  EXPECT_EQ(reads.processes, reads.energy);
}

// An H200's driver takes 4.5 ms of CPU for the counter and 1.5 ms for the activity.
struct Spent {
  double share = 0;  // of a core, for the expensive fields
  std::size_t counters = 0;
};
Spent spent_in_a_minute(const SamplerOptions& options, Fraction busy,
                        std::span<const FieldNeed> needs = {}) {
  FakeClock clock;
  FakeSource source(clock);
  source.cost = std::make_shared<DriverCosts>();
  source.cost->add(DriverCall::energy, 4500us);
  source.cost->add(DriverCall::activity, 1500us);
  source.extra = [&](Sample& sample) { sample.gpu_utilisation = busy; };
  Sampler sampler(source, clock, options, needs);
  for (int i = 0; i < 600; ++i, clock.advance(100ms)) {
    sampler.want_counter(CounterNeed::if_cheap);
    (void)sampler.sample();
  }
  Spent out;
  for (const ReadPlan& plan : source.plans) {
    out.counters += plan.energy ? 1 : 0;
    out.share += (plan.energy ? 0.0045 : 0) + (plan.activity ? 0.0015 : 0);
  }
  out.share /= 60;
  return out;
}

TEST_F(SamplerTest, ADriverThatTakesLongIsAskedMoreSeldom) {
  const SamplerOptions options;
  const Spent busy = spent_in_a_minute(options, percent(90));
  EXPECT_LT(busy.share, 1.2 * options.driver_share);
  EXPECT_GT(busy.share, 0.7 * options.driver_share);
  EXPECT_GT(busy.counters, 15u);
  EXPECT_LT(spent_in_a_minute(options, percent(0)).share, 0.0012);  // each ten seconds
  // A policy that needs the activity each 0.2 s has it.
  const FieldNeed needs[] = {{Field::activity, 200ms}};
  EXPECT_GT(spent_in_a_minute(options, percent(90), needs).share, 0.007);
}

// Work that begins is not waited for at the pace of an idle GPU.
TEST_F(SamplerTest, WhenWorkBeginsThePaceIsQuickAtOnce) {
  source_.cost = std::make_shared<DriverCosts>();
  source_.cost->add(DriverCall::energy, 4500us);
  Fraction busy(0);
  source_.extra = [&](Sample& sample) { sample.gpu_utilisation = busy; };
  Sampler sampler(source_, clock_);
  std::vector<int> read;
  for (int at = 0; at < 40'000; at += 100, clock_.advance(100ms)) {
    busy = Fraction(at < 20'000 ? 0 : 1);
    (void)sampler.sample();
    if (source_.plans.back().energy) read.push_back(at);
  }
  const auto late = std::find_if(read.begin(), read.end(), [](int at) { return at > 20'000; });
  ASSERT_NE(late, read.end());
  EXPECT_LE(*late, 21'500);
  EXPECT_GE(std::count_if(read.begin(), read.end(), [](int at) { return at > 20'000; }), 15);
  EXPECT_LE(std::count_if(read.begin(), read.end(), [](int at) { return at < 20'000; }), 4);
}

TEST_F(SamplerTest, KeepsThePhaseAfterALateTick) {
  const auto reads = run({0, 200, 400, 600, 800, 1150, 1200, 1850, 2010, 2850, 3000, 3200});
  EXPECT_EQ(reads.energy, (std::vector{0, 1150, 2010, 3000}));
}

TEST_F(SamplerTest, SkipsWhatWasMissedAndKeepsThePhase) {
  const auto reads = run({0, 3700, 3800, 3890, 4000, 4850, 5000});
  EXPECT_EQ(reads.energy, (std::vector{0, 3700, 4000, 5000}));
}

TEST_F(SamplerTest, ATickThatComesALittleEarlyIsOnTime) {
  const auto reads = run({0, 195, 399, 590, 800, 1000});
  EXPECT_EQ(reads.activity, (std::vector{0, 195, 399, 590, 800, 1000}));
  EXPECT_EQ(reads.energy, (std::vector{0, 1000}));
}

// However the ticks come: never two reads in one period, and none is left out that was due.
RC_GTEST_FIXTURE_PROP(SamplerTest, OneReadAPeriod, ()) {
  const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 1500));
  int at = 0;
  int last_period = -1;
  for (const int step : steps) {
    const auto reads = run({at});
    const int period = (at + 100) / 1000;
    RC_ASSERT(reads.energy.empty() == (period == last_period));
    last_period = period;
    at += step;
  }
}

TEST_F(SamplerTest, EverythingReadsTheDearFieldsToo) {
  run({0, 100});
  EXPECT_FALSE(source_.plans.back().energy);
  (void)sampler_.sample(ReadDepth::all);
  EXPECT_TRUE(source_.plans.back().energy);
  EXPECT_TRUE(source_.plans.back().activity);
  EXPECT_TRUE(source_.plans.back().processes);
}

// However fast the loop and whoever asks: not before the counter can have moved, and nothing else.
TEST_F(SamplerTest, ACounterThatIsWantedIsReadAtItsOwnPace) {
  std::vector<int> energy, activity;
  for (const int at : every(10, 1000)) {
    clock_.sleep_until(Instant(std::chrono::milliseconds(at)));
    sampler_.want_counter();
    (void)sampler_.sample();
    if (source_.plans.back().energy) energy.push_back(at);
    if (source_.plans.back().activity) activity.push_back(at);
  }
  EXPECT_EQ(energy, every(90, 1000));                              // a tenth early is on time
  EXPECT_EQ(activity, (std::vector{0, 180, 380, 580, 780, 980}));  // as ever
  // Asked for too soon, it is read when it may be.
  clock_.sleep_until(Instant(1010ms));
  sampler_.want_counter();
  for (const int at : {1020, 1090, 1180}) {
    clock_.sleep_until(Instant(std::chrono::milliseconds(at)));
    (void)sampler_.sample();
    EXPECT_EQ(source_.plans.back().energy, at == 1090) << at;
  }
}

TEST_F(SamplerTest, AFailureKeepsTheNewestAndTellsItsAge) {
  source_.broken = true;
  const Reading none = sampler_.sample();
  EXPECT_FALSE(none.fresh || none.newest);
  EXPECT_EQ(none.failure->code, Errc::query_failed);

  source_.broken = false;
  clock_.advance(1s);
  const Reading good = sampler_.sample();
  EXPECT_EQ(good.fresh, good.newest);
  EXPECT_EQ(good.age, 0s);
  EXPECT_FALSE(good.failure);

  source_.broken = true;
  for (const Duration age : {200ms, 400ms}) {
    clock_.advance(200ms);
    const Reading bad = sampler_.sample();
    EXPECT_FALSE(bad.fresh);
    EXPECT_EQ(bad.newest, good.newest);
    EXPECT_EQ(bad.age, age);
    EXPECT_EQ(bad.failure->message, "the reading failed");
  }
}

TEST_F(SamplerTest, WhatIsNeededMoreOftenIsReadMoreOften) {
  constexpr FieldNeed kNeeds[] = {
      {Field::energy, 300ms}, {Field::activity, 5s}, {Field::tenants}, {Field::sm_clock, 1ms}};
  Sampler sampler(source_, clock_, {}, kNeeds);
  Reads reads;
  for (const int at : every(100, 1000)) {
    clock_.sleep_until(Instant(std::chrono::milliseconds(at)));
    (void)sampler.sample();
    if (source_.plans.back().energy) reads.energy.push_back(at);
    if (source_.plans.back().activity) reads.activity.push_back(at);
    if (source_.plans.back().processes) reads.processes.push_back(at);
  }
  EXPECT_EQ(reads.energy, every(300, 1000));
  EXPECT_EQ(reads.activity, every(200, 1000));  // as without the policy
  EXPECT_EQ(reads.processes, (std::vector{0, 900}));
}

// Of a field that is read seldom the last origin stays; of one whose value stays the renewal does.
TEST_F(SamplerTest, EachFieldHasItsOrigin) {
  const Reading first = sampler_.sample();
  EXPECT_EQ(first.origins[Field::power_usage], (FieldOrigin{Instant{}, Instant{}, "simulated"}));
  EXPECT_FALSE(first.origins[Field::energy]);
  source_.extra = [](Sample& sample) {
    sample.energy = Joules(7);
    sample.temperature = Celsius(50);
    sample.activity.dram = Fraction(0.5);
    sample.read_apart = {{Field::activity, sample.time - 40ms, "gpm"}};
  };
  clock_.advance(1s);
  (void)sampler_.sample();
  clock_.advance(1s);
  source_.extra = [](Sample& sample) { sample.temperature = Celsius(50); };
  const Reading last = sampler_.sample();
  const Instant t1(1s), t2(2s);
  EXPECT_EQ(last.origins[Field::power_usage], (FieldOrigin{t2, t2, "simulated"}));
  EXPECT_EQ(last.origins[Field::temperature], (FieldOrigin{t2, t1, "simulated"}));
  EXPECT_EQ(last.origins[Field::energy], (FieldOrigin{t1, t1, "simulated"}));
  EXPECT_EQ(last.origins[Field::activity], (FieldOrigin{t1 - 40ms, t1 - 40ms, "gpm"}));
  EXPECT_EQ(last.origins.age(Field::activity, t2), 1040ms);
  EXPECT_FALSE(last.origins.age(Field::tenants, t2));
  source_.broken = true;
  EXPECT_EQ(sampler_.sample().origins, last.origins);
}

// A source may hand out what it read earlier: the age is the sample's, not the call's.
TEST_F(SamplerTest, AnOldSampleIsOld) {
  clock_.advance(10s);
  source_.age = 3s;
  EXPECT_EQ(sampler_.sample().age, 3s);
}

}  // namespace
}  // namespace derate
