#include "policy/simple_policies.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "policy/registry/registry.h"
#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using Kind = Decision::Kind;

// Whatever is asked for, a limit outside the GPU's range is refused and one inside is said as it
// is.
RC_GTEST_PROP(PowerCapProperty, CapsWithinTheLimitsOrRefuses, ()) {
  const int watts = *rc::gen::inRange(1, 1000);
  const auto policy =
      make_test_policy("power-cap", kV100, {"watts=" + std::to_string(watts), "share=0.5"});
  RC_ASSERT(policy.ok() == (watts >= 150 && watts <= 300));
  if (!policy.ok()) {
    RC_ASSERT(policy.error().code == Errc::invalid_argument);
    RC_ASSERT(policy.error().message.find("from 150 to 300 W") != std::string::npos);
    RC_ASSERT(policy.error().message.find(std::to_string(watts)) != std::string::npos);
    return;
  }
  for (int tick = 0; tick < 3; ++tick) {
    const Decision decision = (*policy)->decide({}, test_envelope(kV100));
    RC_ASSERT(decision.kind == Kind::cap);
    RC_ASSERT(decision.power_limit == Watts(watts));
  }
}

TEST(PowerCap, TakesAShareOfTheFactoryLimit) {
  const auto limit = [](const std::vector<std::string>& params) {
    return (*make_test_policy("power-cap", kV100, params))
        ->decide({}, test_envelope(kV100))
        .power_limit;
  };
  EXPECT_EQ(limit({}), Watts(240));
  EXPECT_EQ(limit({"share=1"}), Watts(300));
  EXPECT_EQ(limit({"share=0.5"}), Watts(150));
  EXPECT_EQ(limit({"share=0.5", "watts=200"}), Watts(200));
  const auto refused = make_test_policy("power-cap", kV100, {"share=0.4"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "share 0.4 of 300 W: the power limit of this GPU is set from 150 to 300 W");
}

TEST(PowerCap, WhereTheLimitIsFixedItNamesWhatDoesWithout) {
  const PolicyInfo& info = **find_policy("power-cap");
  const auto refused = info.create(
      {test_envelope(kV100), Megahertz(952), default_params(info.params), std::nullopt});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::not_supported);
  for (const char* word : {"laptops", "assure", "default"})
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace derate
