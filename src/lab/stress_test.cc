#include "lab/stress.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"

namespace derate {
namespace {

const SimChip& volta() {
  const auto chip = find_sim_chip("V100-SXM2");
  CHECK(chip.ok());
  return **chip;
}

Circumstances under(const Experiment& experiment, std::size_t cell) {
  return circumstances(experiment, volta(), cells_of(experiment)[cell]);
}

TEST(Stress, EveryCounterAxisReachesTheSensors) {
  Experiment e;
  e.counter_gain = {1.05};
  e.counter_wander = {0.05};
  e.counter_frozen_s = {5};
  e.counter_frozen_every_s = {10};
  e.memory_bias = {0.03};
  e.activity_noise = {0.01};
  ASSERT_EQ(cells_of(e).size(), 1u);
  const Circumstances c = under(e, 0);
  EXPECT_EQ(c.chip.sensors.counter_gain, 1.05);
  EXPECT_EQ(c.chip.sensors.counter_wander, 0.05);
  EXPECT_EQ(c.chip.sensors.frozen.lasts, std::chrono::seconds(5));
  EXPECT_EQ(c.chip.sensors.frozen.every, std::chrono::seconds(10));
  EXPECT_EQ(c.chip.sensors.activity_noise, 0.01);
  EXPECT_EQ(c.memory_bias, 0.03);
}

// In full from 79 % of the highest clock down, nothing there.
TEST(Stress, AnOverstatedCounterErrsAtLowClocksOnly) {
  auto work = find_workload(volta(), "GeMM");
  ASSERT_TRUE(work.ok());
  const Workload before = *work;
  overstate_memory(*work, 0.03, volta());
  const auto shown = [](const Workload& one, std::size_t at) {
    return one.phases[0].points[at].memory_utilisation->value();
  };
  const std::size_t top = volta().sm_clocks.size() - 1;
  EXPECT_EQ(shown(*work, top), shown(before, top));
  for (std::size_t at = 0; at < top; ++at) EXPECT_GE(shown(*work, at), shown(before, at) - 1e-12);
  EXPECT_NEAR(shown(*work, 0) - shown(before, 0), 0.03 * shown(before, top), 1e-9);
}

}  // namespace
}  // namespace derate
