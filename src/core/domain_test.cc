#include "core/domain.h"

#include <gtest/gtest.h>

#include "core/knob.h"

namespace derate {
namespace {

TEST(DomainId, AGpuIsNamedByItsUuidAndAnotherWithItsKind) {
  const DomainId gpu = gpu_domain("GPU-1"), cpu{"cpu", "package-0"};
  EXPECT_EQ(to_string(gpu), "gpu:GPU-1");
  EXPECT_EQ(short_name(gpu), "GPU-1");
  EXPECT_EQ(short_name(cpu), "cpu:package-0");
  for (const DomainId& each : {gpu, cpu}) {
    EXPECT_EQ(parse_domain(to_string(each)), each);
    EXPECT_EQ(parse_domain(short_name(each)), each);
  }
}

// Who cannot be read must be restored without a value; who can must have a unit to compare in.
TEST(Knobs, OfAGpuAreFoundByName) {
  for (const KnobInfo& knob : knobs_of(kGpuKind)) {
    EXPECT_EQ(find_knob(gpu_knobs(), knob.name), &knob);
    EXPECT_EQ(knob.readable, knob.restore == KnobInfo::Restore::found) << knob.name;
    EXPECT_GT(knob.tolerance, 0) << knob.name;
  }
  EXPECT_EQ(find_knob(gpu_knobs(), "fan_ratio"), nullptr);
  EXPECT_TRUE(knobs_of("cpu").empty());
}

}  // namespace
}  // namespace derate
