#include "policy/published/published.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "policy/registry/registry.h"
#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using Kind = Decision::Kind;

constexpr Megahertz kCap{1072};  // 0.7 x 1530 = 1071 MHz, rounded up

// A policy and its ticks of 200 ms; tenants are counted in each fifth.
class SweetSpotRig {
 public:
  explicit SweetSpotRig(const std::vector<std::string>& params)
      : policy_(*make_test_policy("sweet-spot", kV100, params)), envelope_(test_envelope(kV100)) {}

  Decision tick(std::optional<int> tenants, int gpu_pct) {
    Estimate estimate = test_reading(1530, gpu_pct, 50, 200);
    estimate.time = now_;
    if (ticks_++ % 5 == 0) estimate.tenants = tenants;
    if (estimate.tenants) origins_[Field::tenants] = FieldOrigin{now_, now_, "test"};
    estimate.origins = origins_;
    now_ += 200ms;
    return policy_->decide(estimate, envelope_);
  }
  // The last decision of that many ticks alike.
  Decision ticks(int count, std::optional<int> tenants, int gpu_pct) {
    Decision last = tick(tenants, gpu_pct);
    for (int i = 1; i < count; ++i) last = tick(tenants, gpu_pct);
    return last;
  }

 private:
  std::unique_ptr<Policy> policy_;
  Envelope envelope_;
  Instant now_{};
  FieldOrigins origins_;
  int ticks_ = 0;
};

const std::vector<std::string> kMaxElse = {"delegate=max-freq"};

bool capped(const Decision& decision) {
  return decision.kind == Kind::set && decision.clock == kCap;
}

// The published condition: more than one process and a busy GPU; each alone is not enough.
RC_GTEST_PROP(SweetSpotProperty, HoldsWhatIsSharedAndBusyAndNothingElse, ()) {
  const int tenants = *rc::gen::inRange(0, 5), busy = *rc::gen::inRange(0, 101);
  SweetSpotRig rig(kMaxElse);
  const Decision settled = rig.ticks(100, tenants, busy);
  RC_ASSERT(capped(settled) == (tenants > 1 && busy > 90));
  RC_ASSERT((capped(settled) || settled.clock == Megahertz(1530)));
}

// However the readings go, the cap comes or goes at most once in `dwell`.
RC_GTEST_PROP(SweetSpotProperty, DoesNotFlap, (unsigned seed)) {
  std::mt19937_64 random(seed);
  SweetSpotRig rig({"delegate=max-freq", "dwell=3"});
  bool before = false;
  int last_change = -15;
  int tenants = 2, busy = 100;
  for (int tick = 0; tick < 1000; ++tick) {
    if (random() % 8 == 0) tenants = static_cast<int>(random() % 4);
    if (random() % 8 == 0) busy = static_cast<int>(random() % 101);
    const bool now = capped(rig.tick(tenants, busy));
    if (now == before) continue;
    RC_ASSERT(tick - last_change >= 15);
    last_change = tick;
    before = now;
  }
}

TEST(SweetSpot, ComesAfterTheDwellAndGoesAfterTheDwell) {
  SweetSpotRig rig(kMaxElse);
  rig.ticks(10, 1, 100);
  EXPECT_FALSE(capped(rig.ticks(25, 2, 100)));
  EXPECT_TRUE(capped(rig.tick(2, 100)));
  EXPECT_TRUE(capped(rig.ticks(100, 2, 85))) << "within the band";
  EXPECT_TRUE(capped(rig.ticks(25, 2, 80)));
  EXPECT_FALSE(capped(rig.tick(2, 80)));
  EXPECT_FALSE(capped(rig.ticks(100, 2, 85)));
}

TEST(SweetSpot, OneReadingOtherwiseStartsTheDwellAgain) {
  SweetSpotRig rig(kMaxElse);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(capped(rig.ticks(20, 3, 100)));
    EXPECT_FALSE(capped(rig.tick(3, 50)));
  }
}

TEST(SweetSpot, WithoutACountTheDelegateDecides) {
  SweetSpotRig rig(kMaxElse);
  EXPECT_FALSE(capped(rig.ticks(200, std::nullopt, 100)));
  EXPECT_TRUE(capped(rig.ticks(100, 2, 100)));
  // A count is kept over the ticks between, not for ever.
  EXPECT_TRUE(capped(rig.ticks(45, std::nullopt, 100)));
  EXPECT_FALSE(capped(rig.ticks(45, std::nullopt, 100)));
}

TEST(SweetSpot, AfterTheCapTheDelegateStartsOver) {
  SweetSpotRig rig({"dwell=1"});
  EXPECT_EQ(rig.tick(1, 100).clock, Megahertz(952)) << "GEEPAFS probes upwards";
  rig.ticks(3, 1, 100);
  EXPECT_TRUE(capped(rig.ticks(20, 2, 100)));
  Decision decision = rig.tick(1, 100);
  for (int i = 0; i < 20 && capped(decision); ++i) decision = rig.tick(1, 100);
  EXPECT_EQ(decision.clock, Megahertz(952));
  EXPECT_EQ(rig.tick(1, 100).clock, Megahertz(1147));
}

// Alone on its GPU it is its delegate, tick by tick.
RC_GTEST_PROP(SweetSpotProperty, AloneItIsItsDelegate, (unsigned seed)) {
  std::mt19937_64 random(seed);
  const std::vector<std::string> delta = {seed % 2 == 0 ? "delta=0.05" : "delta=0.3"};
  auto alone = *make_test_policy("geepafs", kV100, delta);
  auto policy = *make_test_policy("sweet-spot", kV100, delta);
  const Envelope envelope = test_envelope(kV100);
  double clock = 1530;
  for (int tick = 0; tick < 200; ++tick) {
    Estimate estimate = test_reading(clock, 100, static_cast<int>(40 + clock / 50), 200);
    estimate.time = Instant(tick * 200ms);
    estimate.tenants = 1;
    const Decision wanted = alone->decide(estimate, envelope);
    RC_ASSERT(policy->decide(estimate, envelope) == wanted);
    if (wanted.kind == Kind::set) clock = wanted.clock.value() + static_cast<double>(random() % 9);
  }
}

TEST(SweetSpot, EveryDelegateIsAPolicyAndNotItself) {
  const PolicyInfo& info = **find_policy("sweet-spot");
  const ParamSpec& spec = **find_param(info.params, info.name, "delegate");
  ASSERT_FALSE(spec.choices.empty());
  for (const char* name : spec.choices) {
    EXPECT_TRUE(find_policy(name).ok()) << name;
    EXPECT_STRNE(name, info.name);
    EXPECT_TRUE(make_test_policy("sweet-spot", kV100, {std::string("delegate=") + name}).ok());
  }
  const auto refused = make_test_policy("sweet-spot", kV100, {"delegate=sweet-spot"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "delegate 'sweet-spot': allowed is one of geepafs, max-freq, efficient-fix, nv-boost, "
            "utiliz-scale");
}

}  // namespace
}  // namespace derate
