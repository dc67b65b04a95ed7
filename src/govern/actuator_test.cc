#include "govern/actuator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "govern/test_control.h"

namespace derate {
namespace {

using namespace literals;
using Outcome = Actuation::Outcome;
using Calls = std::vector<std::string>;

Decision set(double mhz) { return Decision::set(Megahertz(mhz), {"wanted", {}}); }
const Decision kHold = Decision::hold({"holding", {}});
const Decision kRelease = Decision::release({"released", {}});

TEST(Actuator, WritesOnlyWhatDiffers) {
  TestControl control;
  Actuator actuator(&control);
  EXPECT_EQ(actuator.apply(kHold).outcome, Outcome::nothing);
  EXPECT_EQ(actuator.apply(kRelease).outcome, Outcome::nothing);
  EXPECT_EQ(actuator.apply(set(1200)), (Actuation{Outcome::written, 1200_MHz, {}}));
  EXPECT_EQ(actuator.apply(set(1200)), (Actuation{Outcome::nothing, 1200_MHz, {}}));
  EXPECT_EQ(actuator.apply(kHold), (Actuation{Outcome::nothing, 1200_MHz, {}}));
  EXPECT_EQ(actuator.apply(set(1300)).outcome, Outcome::written);
  EXPECT_EQ(actuator.apply(kRelease), (Actuation{Outcome::released, {}, {}}));
  EXPECT_EQ(actuator.apply(kRelease).outcome, Outcome::nothing);
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "1300..1300", "reset"}));
}

TEST(Actuator, TriesAgainWhatFailed) {
  TestControl control;
  Actuator actuator(&control);
  actuator.apply(set(1500));
  control.refuse = true;
  EXPECT_EQ(actuator.apply(set(1200)), (Actuation{Outcome::failed, 1500_MHz, "refused"}));
  EXPECT_EQ(actuator.apply(kHold).outcome, Outcome::failed);
  EXPECT_EQ(actuator.locked(), 1500_MHz);
  control.refuse = false;
  EXPECT_EQ(actuator.apply(kHold), (Actuation{Outcome::written, 1200_MHz, {}}));
  EXPECT_EQ(actuator.apply(kHold).outcome, Outcome::nothing);
  EXPECT_EQ(control.calls.size(), 4u);
  control.refuse = true;
  EXPECT_EQ(actuator.apply(kRelease), (Actuation{Outcome::failed, 1200_MHz, "refused"}));
  control.refuse = false;
  EXPECT_EQ(actuator.apply(kHold).outcome, Outcome::released);
}

TEST(Actuator, AShadowReportsAndWritesNothing) {
  Actuator actuator(nullptr);
  EXPECT_EQ(actuator.apply(set(1200)), (Actuation{Outcome::shadow, 1200_MHz, {}}));
  EXPECT_EQ(actuator.apply(set(1200)).outcome, Outcome::nothing);
  EXPECT_EQ(actuator.apply(kRelease), (Actuation{Outcome::shadow, {}, {}}));
  EXPECT_TRUE(actuator.restore().ok());
}

TEST(Actuator, RestoresWhenItGoes) {
  TestControl control;
  {
    Actuator actuator(&control);
    actuator.apply(set(1200));
  }
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "reset"}));
}

TEST(Actuator, AGpuThatWasNeverTouchedIsLeftAlone) {
  TestControl control;
  {
    Actuator actuator(&control);
    actuator.apply(kHold);
    actuator.apply(kRelease);
    EXPECT_TRUE(actuator.restore().ok());
  }
  EXPECT_TRUE(control.calls.empty());
}

TEST(Actuator, RestoresOnceAndSaysWhenItCannot) {
  TestControl control;
  {
    Actuator actuator(&control);
    actuator.apply(set(1200));
    control.refuse = true;
    EXPECT_EQ(actuator.restore().error().code, Errc::no_permission);
    EXPECT_EQ(actuator.locked(), 1200_MHz);
    control.refuse = false;
    EXPECT_TRUE(actuator.restore().ok());
    EXPECT_EQ(actuator.locked(), std::nullopt);
    EXPECT_TRUE(actuator.restore().ok());
  }
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "reset", "reset"}));
}

// A lock that was refused may still have had an effect: the GPU is given back all the same.
TEST(Actuator, RestoresAfterARefusedWrite) {
  TestControl control;
  {
    Actuator actuator(&control);
    control.refuse = true;
    actuator.apply(set(1200));
    control.refuse = false;
  }
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "reset"}));
}

TEST(Actuator, TheOneMovedFromRestoresNothing) {
  TestControl control;
  {
    Actuator actuator(&control);
    actuator.apply(set(1200));
    {
      Actuator moved(std::move(actuator));
      EXPECT_EQ(moved.locked(), 1200_MHz);
      EXPECT_EQ(moved.apply(set(1200)).outcome, Outcome::nothing);
    }
    EXPECT_EQ(control.calls.size(), 2u);
  }
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "reset"}));
}

// Whatever is decided and whatever fails: once writes succeed the GPU is where the decisions want
// it, and after the end it is as found.
RC_GTEST_PROP(ActuatorProperty, ConvergesAndRestores, (unsigned seed)) {
  std::mt19937_64 random(seed);
  TestControl control;
  {
    Actuator actuator(&control);
    std::optional<Megahertz> wanted;
    for (int i = 0; i < 50; ++i) {
      const auto kind = random() % 3;
      const double clock = static_cast<double>(1000 + 10 * (random() % 5));
      const Decision decision = kind == 0 ? kHold : kind == 1 ? kRelease : set(clock);
      if (kind == 1) wanted.reset();
      if (kind == 2) wanted = decision.clock;
      control.refuse = random() % 3 == 0;
      const auto before = control.calls.size();
      const Actuation done = actuator.apply(decision);
      RC_ASSERT(control.calls.size() - before == (done.outcome == Outcome::nothing ? 0u : 1u));
      RC_ASSERT(done.locked == actuator.locked());
      if (!control.refuse) RC_ASSERT(done.locked == wanted);
    }
    control.refuse = false;
  }
  if (!control.calls.empty()) RC_ASSERT(control.calls.back() == "reset");
}

}  // namespace
}  // namespace derate
