#include "open_metrics.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/printing.h"

namespace derate::agent {
namespace {

// What MetricText writes of any families is what is read back.
RC_GTEST_PROP(OpenMetrics, AreReadAsTheyWereWritten, ()) {
  const auto label = rc::gen::suchThat<std::string>([](const std::string& text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c > 0 && c != 0x7f; });
  });
  std::vector<ReadFamily> families;
  for (int i = 0; i < *rc::gen::inRange(0, 5); ++i) {
    ReadFamily& family = families.emplace_back();
    family.name = "derate_" + std::to_string(i) + "_watts";
    family.type = *rc::gen::element(MetricType::gauge, MetricType::counter, MetricType::info,
                                    MetricType::foreign_counter);
    family.unit = *rc::gen::element<std::string>("", "watts");
    family.help = *rc::gen::element<std::string>("A sentence.", "With \"quotes\", \\ and\na line.");
    for (int n = 0; n < *rc::gen::inRange(1, 4); ++n)
      family.points.push_back(
          {{{"gpu", std::to_string(n)}, {"name", printing_text(*label)}},
           *rc::gen::suchThat<double>([](double x) { return std::isfinite(x); })});
  }
  MetricText text(MetricFormat::openmetrics);
  for (const ReadFamily& family : families) {
    text.begin({family.name.c_str(), family.type, family.unit.c_str(), family.help.c_str()});
    for (const MetricPoint& point : family.points) {
      MetricLabels labels;
      for (const auto& [name, value] : point.labels) labels.add(name, value);
      text.add(labels, point.value);
    }
  }
  const auto read = read_open_metrics(text.take());
  RC_ASSERT(read.ok());
  RC_ASSERT(*read == families);
}

TEST(OpenMetrics, AreRefusedWithTheirLine) {
  const auto refused = [](const std::string& text) {
    const auto read = read_open_metrics(text);
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(refused("# TYPE a gauge\na 1\n# EOF\n"), "");
  EXPECT_EQ(refused("# TYPE a gauge\na 1\n"), "metrics: the end of the text is missing");
  EXPECT_EQ(refused("# TYPE a gauge\nb 1\n# EOF\n"), "metrics, line 2: 'b 1' is no OpenMetrics");
  for (const char* wrong :
       {"a 1\n# EOF\n", "# TYPE a gauge\na{b=\"c} 1\n# EOF\n", "# TYPE a gauge\na x\n# EOF\n",
        "# TYPE a gauge\na{b=\"\\x\"} 1\n# EOF\n", "# TYPE a word\na 1\n# EOF\n", "<html>\n",
        "# TYPE a gauge\na 1\n# EOF\na 2\n", "# TYPE a counter\na 1\n# EOF\n", "# EOF"})
    EXPECT_NE(refused(wrong), "") << wrong;
}

RC_GTEST_PROP(OpenMetrics, OfAnyTextEndInAnAnswer, (const std::string& text)) {
  (void)read_open_metrics("# TYPE a gauge\na{" + text + "\n# EOF\n");
  (void)read_open_metrics(text);
}

}  // namespace
}  // namespace derate::agent
