#include "base/metric_text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "base/test_comma_locale.h"
#include "base/test_exposition.h"

namespace derate {
namespace {

constexpr MetricFamily kPower{"gpu_power_watts", MetricType::gauge, "watts", "What it draws."};
constexpr MetricFamily kEnergy{"gpu_energy_joules", MetricType::counter, "joules", "A \"sum\"."};
constexpr MetricFamily kBuild{"build", MetricType::info, "", "Which one\\two."};
constexpr MetricFamily kForeign{"DCGM_FI_DEV_X", MetricType::foreign_counter, "", "Theirs."};

std::string all_kinds(MetricFormat format) {
  MetricText text(format);
  const MetricLabels gpu = MetricLabels().add("gpu", "0").add("uuid", "GPU-1");
  text.begin(kPower);
  text.add(gpu, 312.5);
  text.begin(kEnergy);
  text.add(gpu, MetricLabels().add("tenant", "a"), 1000000);
  text.begin(kBuild);
  text.add({}, MetricLabels().add("version", "1"), 1);
  text.begin(kForeign);
  text.add({}, 7);
  return text.take();
}

TEST(MetricText, PrometheusNamesFamiliesAsTheirSamples) {
  EXPECT_EQ(all_kinds(MetricFormat::prometheus),
            "# HELP gpu_power_watts What it draws.\n"
            "# TYPE gpu_power_watts gauge\n"
            "gpu_power_watts{gpu=\"0\",uuid=\"GPU-1\"} 312.5\n"
            "# HELP gpu_energy_joules_total A \"sum\".\n"
            "# TYPE gpu_energy_joules_total counter\n"
            "gpu_energy_joules_total{gpu=\"0\",uuid=\"GPU-1\",tenant=\"a\"} 1000000\n"
            "# HELP build_info Which one\\\\two.\n"
            "# TYPE build_info gauge\n"
            "build_info{version=\"1\"} 1\n"
            "# HELP DCGM_FI_DEV_X Theirs.\n"
            "# TYPE DCGM_FI_DEV_X counter\n"
            "DCGM_FI_DEV_X 7\n");
}

TEST(MetricText, OpenMetricsHasUnitsTypesOfItsOwnAndAnEnd) {
  EXPECT_EQ(all_kinds(MetricFormat::openmetrics),
            "# HELP gpu_power_watts What it draws.\n"
            "# TYPE gpu_power_watts gauge\n"
            "# UNIT gpu_power_watts watts\n"
            "gpu_power_watts{gpu=\"0\",uuid=\"GPU-1\"} 312.5\n"
            "# HELP gpu_energy_joules A \\\"sum\\\".\n"
            "# TYPE gpu_energy_joules counter\n"
            "# UNIT gpu_energy_joules joules\n"
            "gpu_energy_joules_total{gpu=\"0\",uuid=\"GPU-1\",tenant=\"a\"} 1000000\n"
            "# HELP build Which one\\\\two.\n"
            "# TYPE build info\n"
            "build_info{version=\"1\"} 1\n"
            "# HELP DCGM_FI_DEV_X Theirs.\n"
            "# TYPE DCGM_FI_DEV_X unknown\n"
            "DCGM_FI_DEV_X 7\n"
            "# EOF\n");
}

TEST(MetricText, WhatIsMissingIsNoSampleAndAFamilyWithoutSamplesIsNotThere) {
  MetricText text(MetricFormat::prometheus);
  text.begin(kPower);
  text.add({}, std::numeric_limits<double>::quiet_NaN());
  text.add({}, std::numeric_limits<double>::infinity());
  EXPECT_EQ(text.take(), "");
}

TEST(MetricText, NumbersAreShortAndExact) {
  const std::pair<double, const char*> cases[] = {{0, "0"},
                                                  {-0.0, "0"},
                                                  {0.1, "0.1"},
                                                  {-2, "-2"},
                                                  {1755000000, "1755000000"},
                                                  {123456789.123, "123456789.123"},
                                                  {1e15, "1e+15"},
                                                  {1e-7, "1e-07"},
                                                  {1e300, "1e+300"},
                                                  {0.000125, "0.000125"}};
  for (const auto& [value, shown] : cases) {
    MetricText text(MetricFormat::prometheus);
    text.begin(kForeign);
    text.add({}, value);
    EXPECT_TRUE(text.take().ends_with(std::string("DCGM_FI_DEV_X ") + shown + "\n")) << shown;
  }
}

RC_GTEST_PROP(MetricText, AnyFiniteNumberIsReadAsTheSame, (double value)) {
  RC_PRE(std::isfinite(value));
  MetricText text(MetricFormat::prometheus);
  text.begin(kPower);
  text.add({}, value);
  RC_ASSERT(read_exposition(text.take(), MetricFormat::prometheus).find("gpu_power_watts") ==
            value);
}

// Whatever others have named themselves: the text can be read, and text that prints comes back.
RC_GTEST_PROP(MetricText, AnyBytesAreALabel, (const std::string& name)) {
  for (const MetricFormat format : {MetricFormat::prometheus, MetricFormat::openmetrics}) {
    MetricText text(format);
    text.begin(kPower);
    text.add(MetricLabels().add("tenant", name), 1);
    const Exposition read = read_exposition(text.take(), format);
    RC_ASSERT(read.wrong == "");
    RC_ASSERT(read.samples.at("gpu_power_watts").size() == 1u);
  }
}

TEST(MetricLabels, AreEscapedAndUtf8Stays) {
  EXPECT_EQ(MetricLabels().add("a", "x\"y\\z\nw").text(), "a=\"x\\\"y\\\\z\\nw\"");
  EXPECT_EQ(MetricLabels().add("a", "Grüße").text(), "a=\"Grüße\"");
  EXPECT_EQ(MetricLabels().add("a", "\xff\x1b[2J").text(), "a=\"??[2J\"");
  EXPECT_EQ(MetricLabels().add("a", "").add("b", "1").text(), "b=\"1\"");
}

TEST(MetricText, IsTheSameInALocaleWithCommas) {
  const std::string here = all_kinds(MetricFormat::openmetrics);
  const CommaLocale comma;
  char shown[16];
  std::snprintf(shown, sizeof shown, "%.1f", 1.5);
  if (comma.of_c_library()) {
    EXPECT_STREQ(shown, "1,5");  // it is in force
  }
  EXPECT_EQ(all_kinds(MetricFormat::openmetrics), here);
}

// The reader that the other tests go by finds what is wrong.
TEST(Exposition, MistakesAreFound) {
  const char* const kBad[] = {
      "a 1\n",                                                       // no head
      "# TYPE a gauge\na 1",                                         // no end of the line
      "# TYPE a gauge\na 1\na 2\n",                                  // twice
      "# TYPE a gauge\na{x=\"1} 1\n",                                // a quote that does not end
      "# TYPE a gauge\na{x=\"\\q\"} 1\n",                            // an escape that there is not
      "# TYPE a gauge\na NaN\n",                                     // no number
      "# TYPE a gauge\nb 1\n",                                       // another family
      "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\n",  // twice
      "# TYPE a counter\na -1\n",                                    // below 0
  };
  for (const char* text : kBad)
    EXPECT_NE(read_exposition(text, MetricFormat::prometheus).wrong, "") << text;
  const char* const kBadOpen[] = {
      "# TYPE a gauge\na 1\n",                         // no # EOF
      "# TYPE a counter\na 1\n# EOF\n",                // no _total
      "# TYPE a_total counter\na_total 1\n# EOF\n",    // a family of that ending
      "# TYPE a gauge\n# UNIT a watts\na 1\n# EOF\n",  // not in its name
      "# TYPE a info\na_info 2\n# EOF\n",
      "# TYPE a gauge\na 1\n# EOF\n\n",
  };
  for (const char* text : kBadOpen)
    EXPECT_NE(read_exposition(text, MetricFormat::openmetrics).wrong, "") << text;
}

}  // namespace
}  // namespace derate
