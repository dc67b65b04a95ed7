#include "policy/published/published.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using Kind = Decision::Kind;

Estimate busy(double activity, double utilisation) {
  Estimate estimate;
  estimate.freshness = Freshness::fresh;
  estimate.activity.sm = Fraction(activity);
  estimate.origins[Field::activity] = FieldOrigin{};
  estimate.gpu_utilisation = Fraction(utilisation);
  return estimate;
}

std::string with_phi(double phi) { return "phi=" + std::to_string(phi); }

// The clock that a policy asks for at its first sight of `estimate`.
Megahertz first_clock(const TestChip& chip, const Estimate& estimate, double phi = 0.5) {
  const Decision decision = (*make_test_policy("gpu-activity", chip, {with_phi(phi)}))
                                ->decide(estimate, test_envelope(chip));
  EXPECT_EQ(decision.kind, Kind::set);
  EXPECT_EQ(describe(decision.reason).find("nan"), std::string::npos);
  return decision.clock;
}

double share() { return *rc::gen::inRange(0, 1001) / 1000.0; }

// More activity never lowers the clock, more phi never raises it, nor does more time in kernels.
RC_GTEST_PROP(GpuActivityProperty, IsMonotone, (unsigned pick)) {
  const TestChip& chip = kTestChips[pick % 3];
  const double phi = share(), more_phi = phi + (1 - phi) * share();
  const double activity = share(), more = activity + (1 - activity) * share();
  const double utilisation = 0.01 + 0.99 * share();
  const double more_utilisation = utilisation + (1 - utilisation) * share();
  const Megahertz clock = first_clock(chip, busy(activity, utilisation), phi);
  RC_ASSERT(first_clock(chip, busy(more, utilisation), phi) >= clock);
  RC_ASSERT(first_clock(chip, busy(activity, utilisation), more_phi) <= clock);
  RC_ASSERT(first_clock(chip, busy(activity, more_utilisation), phi) <= clock);
}

// phi 0: the highest clock; phi 1: the efficient one; whatever is read.
RC_GTEST_PROP(GpuActivityProperty, TheEndsOfPhiAreFixedClocks, (unsigned pick)) {
  const TestChip& chip = kTestChips[pick % 3];
  Estimate estimate = busy(share(), share());
  if (*rc::gen::arbitrary<bool>()) estimate.activity.sm.reset();
  if (*rc::gen::arbitrary<bool>()) estimate.gpu_utilisation.reset();
  RC_ASSERT(first_clock(chip, estimate, 0) == test_envelope(chip).highest());
  RC_ASSERT(first_clock(chip, estimate, 1) == Megahertz(chip.efficient_mhz));
}

// The published formula, to the next supported clock up.
RC_GTEST_PROP(GpuActivityProperty, IsTheFormula, (unsigned pick)) {
  const TestChip& chip = kTestChips[pick % 3];
  const Envelope envelope = test_envelope(chip);
  const double utilisation = 0.01 + 0.99 * share(), activity = utilisation * share();
  const double low = chip.efficient_mhz, high = envelope.highest().value();
  const double wanted = low + (high - low) * activity / utilisation;
  const Megahertz clock = first_clock(chip, busy(activity, utilisation));
  RC_ASSERT(clock.value() >= wanted - 1e-6);
  RC_ASSERT((envelope.stepped(clock, -1).value() < wanted + 1e-6 || clock == envelope.lowest()));
}

TEST(GpuActivity, ScalesActivityWithTheTimeInKernels) {
  for (const auto& [activity, utilisation, clock] : {std::tuple(0.0, 1.0, 1110),
                                                     {0.5, 1.0, 1260},
                                                     {0.3, 0.6, 1260},
                                                     {1.0, 1.0, 1410},
                                                     {0.9, 0.5, 1410},
                                                     {0.0, 0.5, 1110}})
    EXPECT_EQ(first_clock(kA100, busy(activity, utilisation)), Megahertz(clock))
        << activity << " in " << utilisation;
}

TEST(GpuActivity, WithoutUtilisationActivityCountsAsItIs) {
  Estimate estimate = busy(0.5, 0);
  EXPECT_EQ(first_clock(kA100, estimate), Megahertz(1260));
  estimate.gpu_utilisation.reset();
  EXPECT_EQ(first_clock(kA100, estimate), Megahertz(1260));
}

// GEOPM's rule; so Volta and Ampere stay at the top.
TEST(GpuActivity, WithoutActivityTheClockIsTheTopOfTheRange) {
  EXPECT_EQ(first_clock(kV100, test_reading(1530, 50, 50, 200)), Megahertz(1530));
  EXPECT_EQ(first_clock(kV100, {}), Megahertz(1530));
  EXPECT_EQ(first_clock(kA100, test_reading(1410, 50, 50, 200), 0.75), Megahertz(1260));
}

TEST(GpuActivity, ActivityLastsOverTicksThatDoNotReadItButNotForEver) {
  auto policy = *make_test_policy("gpu-activity", kA100);
  const Envelope envelope = test_envelope(kA100);
  Estimate estimate = busy(0.5, 1);
  EXPECT_EQ(policy->decide(estimate, envelope).clock, Megahertz(1260));
  estimate.activity.sm.reset();
  estimate.time += 1s;
  EXPECT_EQ(policy->decide(estimate, envelope).clock, Megahertz(1260));
  estimate.time += 1ms;
  EXPECT_EQ(policy->decide(estimate, envelope).clock, Megahertz(1410));
}

TEST(GpuActivity, ParksAfterTenTicksWithoutAKernelUnlessPhiAsksForPerformance) {
  for (const double phi : {0.5, 0.7, 1.0, 0.4}) {
    SCOPED_TRACE(phi);
    auto policy = *make_test_policy("gpu-activity", kA100, {with_phi(phi), "efficient_clock=1260"});
    const Envelope envelope = test_envelope(kA100);
    for (int round = 0; round < 2; ++round) {
      for (int tick = 1; tick <= 30; ++tick) {
        const Megahertz clock = policy->decide(busy(0, 0), envelope).clock;
        EXPECT_EQ(clock == Megahertz(1110), phi >= 0.5 && tick >= 10) << tick;
      }
      EXPECT_GT(policy->decide(busy(0.1, 1), envelope).clock, Megahertz(1110));
    }
  }
}

TEST(GpuActivity, WorksWithinTheEnvelopeOfTheTick) {
  auto policy = *make_test_policy("gpu-activity", kA100);
  const Envelope full = test_envelope(kA100);
  const Envelope hot = *Envelope::create(full.clocks(), full.lowest(), Megahertz(1290));
  EXPECT_EQ(policy->decide(busy(1, 1), hot).clock, Megahertz(1290));
  EXPECT_EQ(policy->decide(busy(0.5, 1), hot).clock, Megahertz(1200));
}

TEST(GpuActivity, RefusesAnEfficientClockOutsideTheEnvelope) {
  EXPECT_TRUE(make_test_policy("gpu-activity", kA100, {"efficient_clock=1200"}).ok());
  for (const char* wrong : {"efficient_clock=1000", "efficient_clock=1500"}) {
    const auto policy = make_test_policy("gpu-activity", kA100, {wrong});
    ASSERT_FALSE(policy.ok());
    EXPECT_EQ(policy.error().code, Errc::invalid_argument);
    EXPECT_NE(policy.error().message.find("1110 to 1410 MHz"), std::string::npos);
  }
}

}  // namespace
}  // namespace derate
