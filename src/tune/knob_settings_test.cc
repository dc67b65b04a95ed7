#include "tune/knob_settings.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace derate {
namespace {

using namespace literals;

Capability gpu_with(Watts lowest, Watts highest) {
  Capability out;
  out.id.uuid = "GPU-1";
  out.power_limits = PowerLimits{lowest, highest, highest};
  return out;
}

RC_GTEST_PROP(LimitSettings, LieWithinWhatTheGpuTakesAndEndAtWhatWasFound, ()) {
  const double lowest = *rc::gen::inRange(50, 400), range = *rc::gen::inRange(0, 600);
  const Capability gpu = gpu_with(Watts(lowest), Watts(lowest + range));
  const Watts found(lowest + *rc::gen::inRange(0, static_cast<int>(range) + 1));
  const std::vector<LimitedGpu> gpus{{&gpu, found}};
  const auto out = limit_settings(gpus);
  RC_ASSERT(out.ok());
  RC_ASSERT(out->settings.back() == found.value());
  RC_ASSERT(out->settings.front() >= lowest);
  RC_ASSERT(std::is_sorted(out->settings.begin(), out->settings.end()));
  // No gap at the bottom that another stride fits into, and a search has something to choose from.
  const double stride = out->settings.size() > 1 ? out->settings[1] - out->settings[0] : 25;
  RC_ASSERT(out->settings.front() - lowest < stride);
  if (found.value() - lowest >= 30) RC_ASSERT(out->settings.size() >= 6u);
}

TEST(LimitSettings, AreZeussOnAV100) {
  const Capability gpu = gpu_with(150_W, 300_W);
  const std::vector<LimitedGpu> gpus{{&gpu, {}}};
  EXPECT_EQ(limit_settings(gpus)->settings,
            (std::vector<double>{150, 175, 200, 225, 250, 275, 300}));
}

TEST(LimitSettings, AreThoseThatAllGpusTake) {
  const Capability a = gpu_with(100_W, 300_W), b = gpu_with(150_W, 400_W);
  const std::vector<LimitedGpu> gpus{{&a, 250_W}, {&b, {}}};
  EXPECT_EQ(limit_settings(gpus)->settings.back(), 250);
  EXPECT_EQ(limit_settings(gpus)->settings.front(), 154);  // 25 W would give five
  EXPECT_EQ(limit_settings(gpus, 300_W)->settings.back(), 300);
  EXPECT_EQ(
      limit_settings(gpus, 350_W).error().message,
      "highest power limit 350 W: allowed is what all of the GPUs can be set to, 150 to 300 W");
  Capability laptop = a;
  laptop.power_limits.reset();
  const std::vector<LimitedGpu> both{{&a, {}}, {&laptop, {}}};
  EXPECT_EQ(limit_settings(both).error().code, Errc::not_supported);
}

TEST(ClockSettings, AreCommonOnesAFewOfWhichSuffice) {
  std::vector<Megahertz> all;
  for (int each = 135; each <= 1980; each += 15) all.push_back(Megahertz(each));
  const std::vector<Envelope> envelopes{*Envelope::create(all, 1000_MHz, 1980_MHz),
                                        *Envelope::create(all, 500_MHz, 1800_MHz)};
  const auto out = clock_settings(envelopes);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->settings.front(), 1005);
  EXPECT_EQ(out->settings.back(), 1800);
  EXPECT_DOUBLE_EQ(out->resolution, 33.125);
  const std::vector<Envelope> apart{*Envelope::create(all, 1900_MHz, 1980_MHz),
                                    *Envelope::create(all, 500_MHz, 1800_MHz)};
  EXPECT_FALSE(clock_settings(apart).ok());
}

TEST(Knob, ReadsWhatItWrites) {
  EXPECT_EQ(*parse_knob(to_string(Knob::clock)), Knob::clock);
  EXPECT_EQ(*parse_knob(to_string(Knob::power_limit)), Knob::power_limit);
  EXPECT_EQ(parse_knob("fan").error().message, "knob 'fan': allowed are power-limit, clock");
}

}  // namespace
}  // namespace derate
