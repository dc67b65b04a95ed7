#include "signal/serving/exposition.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fmt/format.h>

#include <cmath>

namespace derate {
namespace {

const WantedNames& some_names() {
  static const WantedNames names({"vllm:running", "steps_total"});
  return names;
}

Result<Exposition> exposition_of(std::string_view text) {
  return read_exposition(text, some_names());
}

// The value of the page's only sample.
std::optional<double> only_value(std::string_view text) {
  const auto page = exposition_of(text);
  EXPECT_TRUE(page.ok()) << page.error().message;
  if (!page.ok() || page->samples.size() != 1) return std::nullopt;
  return page->samples.front().value;
}

std::string refusal_of(std::string_view text) {
  const auto page = exposition_of(text);
  if (page.ok()) return "accepted";
  EXPECT_EQ(page.error().code, Errc::bad_data);
  return page.error().message;
}

RC_GTEST_PROP(Exposition, ReadsTheNumbersAndLabelsThatWereWritten,
              (double value, std::string label)) {
  RC_PRE(std::isfinite(value));
  const std::string written =
      fmt::format("vllm:running{{a=\"{}\",b=\"2\"}} {}\n", escape_label(label), value);
  const auto page = exposition_of(written);
  RC_ASSERT(page.ok());
  RC_ASSERT(page->samples.size() == 1u);
  RC_ASSERT(page->samples[0].value == value);
  RC_ASSERT(unescape_label(page->label(page->samples[0], "a")) == label);
  RC_ASSERT(page->label(page->samples[0], "b") == "2");
}

RC_GTEST_PROP(Exposition, ReadsAnyBytesOrRefusesThem, (std::string text)) {
  const auto page = exposition_of("vllm:running" + text);
  RC_ASSERT(page.ok() || page.error().code == Errc::bad_data);
}

RC_GTEST_PROP(Exposition, KeepsNoLineOfAnotherName, ()) {
  const auto line = *rc::gen::nonEmpty(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("abz_:{}=\"\\ 01.-#\t\r"))));
  RC_PRE(line != "# EOF");
  const auto page = exposition_of(line + "\nsteps_total 3\n" + line + "\n");
  RC_ASSERT(page.ok());
  RC_ASSERT(page->samples.size() == 1u);
}

TEST(Exposition, NamesMayHaveUnderscoresForColons) {
  EXPECT_EQ(only_value("vllm:running 4\n"), 4);
  EXPECT_EQ(only_value("vllm_running 4\n"), 4);
  EXPECT_EQ(only_value("vllm:running_more 4\nsteps_total 2\n"), 2);
  EXPECT_EQ(refusal_of("vllm:running{e=\"0\"} 4\nvllm_running{e=\"1\"} 4\n"),
            "line 2: vllm_running and vllm:running: allowed is one of them on a page");
}

TEST(Exposition, NumbersAreFiniteOrMissing) {
  EXPECT_EQ(only_value("steps_total 1e308\n"), 1e308);
  EXPECT_EQ(only_value("steps_total -3\n"), -3);
  EXPECT_EQ(only_value("steps_total +2.50E+1\n"), 25);
  EXPECT_EQ(only_value("steps_total NaN\n"), std::nullopt);
  for (const char* bad : {"+Inf", "-Inf", "1e999", "+-1", "1_000", "0x10", "1,5", "", "one"})
    EXPECT_EQ(refusal_of(fmt::format("steps_total {}\n", bad)),
              fmt::format("line 1: steps_total '{}': allowed is a finite number, or NaN", bad));
  EXPECT_NE(refusal_of("steps_total{}1\n"), "accepted");  // no blank
}

TEST(Exposition, LinesMayEndAsTheyDoElsewhere) {
  EXPECT_EQ(only_value("\r\n \t steps_total\t{ a = \"b\" , } \t7 \r\n\r\n"), 7);
  EXPECT_EQ(only_value("# HELP steps_total 9\n#steps_total 8\nsteps_total{} 7\n"), 7);
  EXPECT_EQ(only_value("steps_total 7\n# EOF"), 7);
  EXPECT_EQ(only_value("steps_total 7\n# EOF\n\n"), 7);
  EXPECT_TRUE(exposition_of("")->samples.empty());
  EXPECT_EQ(refusal_of("steps_total 7\n# EOF\nsteps_total{a=\"b\"} 7\n"),
            "line 3: text after '# EOF': allowed is no more");
  EXPECT_EQ(refusal_of("\nsteps_total 12"),
            "line 2: 'steps_total 12' ends without a line feed: allowed is a whole page");
}

TEST(Exposition, TimestampsAndExemplarsAreDropped) {
  EXPECT_EQ(only_value("steps_total 7 1395066363000\n"), 7);
  EXPECT_EQ(only_value("steps_total 7 -1.5\n"), 7);
  EXPECT_EQ(only_value("steps_total 7 # {trace_id=\"a\"} 0.5 1.2\n"), 7);
  EXPECT_EQ(only_value("steps_total 7 1.5 # {} 0.5\n"), 7);
  EXPECT_EQ(refusal_of("steps_total 7 yesterday\n"),
            "line 1: steps_total has 'yesterday' after its value: allowed is a timestamp");
  EXPECT_NE(refusal_of("steps_total 7 1 2\n"), "accepted");
}

TEST(Exposition, LabelsAreWholeAndEachOnce) {
  const auto page = exposition_of("steps_total{b=\"x\\\\y\\\"\\n}\",a=\"{1,2}\"} 1\n");
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_EQ(unescape_label(page->label(page->samples[0], "b")), "x\\y\"\n}");
  EXPECT_EQ(page->label(page->samples[0], "a"), "{1,2}");
  EXPECT_EQ(page->label(page->samples[0], "c"), "");
  EXPECT_EQ(refusal_of("steps_total{a=\"1\",a=\"1\"} 1\n"),
            "line 1: steps_total has the label a twice: allowed is each label once");
  for (const char* bad :
       {"{", "{a", "{a}", "{a=}", "{a=1}", "{a=\"1}", "{a=\"1\"", "{a=\"1\"b=\"2\"}", "{a=\"\\t\"}",
        "{a=\"\\", "{1=\"a\"}", "{,}", "{a=\"1\"}}"})
    EXPECT_NE(refusal_of(fmt::format("steps_total{} 1\n", bad)), "accepted") << bad;
}

TEST(Exposition, EachSeriesIsThereOnce) {
  EXPECT_EQ(refusal_of(
                "steps_total{a=\"1\",b=\"2\"} 1\nvllm:running 1\nsteps_total{b=\"2\",a=\"1\"} 1\n"),
            "line 3: steps_total has the labels of line 1: allowed is each series once");
  EXPECT_NE(refusal_of("steps_total{a=\"\"} 1\nsteps_total 1\n"), "accepted");
  EXPECT_EQ(refusal_of("steps_total{a=\"1\"} 1\nsteps_total{a=\"2\"} 1\nsteps_total 1\n"),
            "accepted");
}

TEST(Exposition, SizesAreLimited) {
  EXPECT_EQ(refusal_of(std::string(kMostExpositionBytes + 1, '\n')),
            "a page of 4194305 bytes: allowed are at most 4194304");
  EXPECT_EQ(refusal_of(std::string(kMostExpositionBytes, '\n')), "accepted");
  const std::string longest(kLongestExpositionLine, 'x');
  EXPECT_EQ(refusal_of("steps_total{a=\"" + longest + "\"} 1\n"),
            "line 1: steps_total in a line of 16403 bytes: allowed is a line of at most 16384");
  EXPECT_EQ(refusal_of("other{a=\"" + longest + "\"} 1\n"), "accepted");
  std::string samples, labels;
  for (std::size_t i = 0; i < kMostExpositionSamples; ++i)
    samples += fmt::format("steps_total{{a=\"{}\"}} 1\n", i);
  EXPECT_EQ(refusal_of(samples), "accepted");
  EXPECT_NE(refusal_of(samples + "vllm:running 1\n"), "accepted");
  for (std::size_t i = 0; i < kMostExpositionLabels; ++i) labels += fmt::format("a{}=\"\",", i);
  EXPECT_EQ(refusal_of("steps_total{" + labels + "} 1\n"), "accepted");
  EXPECT_EQ(refusal_of("steps_total{" + labels + "b=\"\"} 1\n"),
            "line 1: steps_total has more than 32 labels: allowed is no more");
}

TEST(Exposition, ErrorsShowNoControlCharacters) {
  for (const char c : refusal_of("steps_total{a=\"\x1b[2J\\x\"} 1\n")) EXPECT_GE(c, ' ');
  EXPECT_LT(refusal_of("steps_total " + std::string(9000, '9') + "x\n").size(), 250u);
}

}  // namespace
}  // namespace derate
