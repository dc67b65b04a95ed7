#include "core/sample.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// A row of the table that is out of place would show.
TEST(SampleFields, AreThoseOfTheirNames) {
  Sample full;
  full.memory_utilisation = Fraction(0.5);
  full.sm_clock = full.memory_clock = Megahertz(1000);
  full.power_usage = full.power_instant = full.power_average = Watts(100);
  full.energy = Joules(1);
  full.temperature = Celsius(50);
  full.throttle_reasons = 0;
  full.activity.fp16 = Fraction(0);
  full.tenants = 1;
  const auto only = [&](Field field) {
    Sample out;
    copy(full, field, out);
    return out;
  };
  for (std::size_t i = 0; i < kFields; ++i) {
    const auto field = static_cast<Field>(i);
    const Sample one = only(field);
    for (std::size_t k = 0; k < kFields; ++k) {
      EXPECT_EQ(has(one, static_cast<Field>(k)), k == i) << i << " " << k;
      EXPECT_EQ(same(one, full, static_cast<Field>(k)), k == i) << i << " " << k;
    }
    EXPECT_TRUE(has(full, field));
    EXPECT_FALSE(has(Sample{}, field));
  }
  EXPECT_EQ(only(Field::utilisation).memory_utilisation, Fraction(0.5));
  EXPECT_EQ(only(Field::power_instant).power_instant, Watts(100));
  EXPECT_EQ(only(Field::power_average).power_average, Watts(100));
  EXPECT_EQ(only(Field::memory_clock).memory_clock, Megahertz(1000));
  EXPECT_EQ(only(Field::energy).energy, Joules(1));
  EXPECT_EQ(only(Field::temperature).temperature, Celsius(50));
  EXPECT_EQ(only(Field::tenants).tenants, 1);
}

TEST(SampleFields, AreReadByTheSamplesSourceUnlessOtherwiseSaid) {
  Sample sample;
  sample.time = Instant(5s);
  sample.source = SampleSource::nvml;
  sample.read_apart = {{Field::activity, Instant(4s), "gpm"}};
  EXPECT_EQ(read_of(sample, Field::energy), (FieldRead{Field::energy, Instant(5s), "nvml"}));
  EXPECT_EQ(read_of(sample, Field::activity), (FieldRead{Field::activity, Instant(4s), "gpm"}));
}

}  // namespace
}  // namespace derate
