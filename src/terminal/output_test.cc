// What reaches terminals and the journal, whatever it is given.
#include "terminal/output.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "base/json.h"
#include "base/outermost.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

TEST(SpanText, NamesItsUnits) {
  const std::pair<double, const char*> spans[] = {{1.5, "1.5 s"},
                                                  {90, "1 min 30 s"},
                                                  {60, "1 min"},
                                                  {59.97, "60.0 s"},
                                                  {7200, "2 h"},
                                                  {3600 * 5 + 65, "5 h 1 min"},
                                                  {86400 * 3 + 3600 * 4, "3 d 4 h"},
                                                  {86400 + 59, "1 d"}};
  for (const auto& [seconds, text] : spans) EXPECT_EQ(span_text(from_seconds(seconds)), text);
}

TEST(PercentText, WhatRoundsToZeroHasNoSign) {
  EXPECT_EQ(percent_text(-0.0004), "0.0 %");
  EXPECT_EQ(percent_text(-0.0006), "-0.1 %");
  EXPECT_EQ(percent_text(-0.004, 0), "0 %");
  EXPECT_EQ(percent_text(0.104, 0), "10 %");
}

// What a call wrote to that stream.
template <class Call>
std::string written(std::FILE* stream, Call call) {
  std::fflush(stream);
  const UniqueFd kept(::dup(::fileno(stream)));
  std::FILE* file = std::tmpfile();
  ::dup2(::fileno(file), ::fileno(stream));
  call();
  std::fflush(stream);
  ::dup2(kept.get(), ::fileno(stream));
  std::string out(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  out.resize(std::fread(out.data(), 1, out.size(), file));
  std::fclose(file);
  return out;
}

const std::string kForged = "x\n<0>derated: GPU 0 is on fire\x1b]0;owned\a\x1b[2J\xc2\x9b";

RC_GTEST_PROP(Output, ALogLineIsOneLineOfPrintingAscii, (const std::string& text)) {
  const std::string out = written(stderr, [&] { print_line("derated", text + kForged); });
  RC_ASSERT((out.starts_with("derated: ") && out.ends_with('\n')));
  RC_ASSERT(out.size() <= kLongestLogLine + 1);
  RC_ASSERT(std::all_of(out.begin(), out.end() - 1, [](char c) { return c >= ' ' && c <= '~'; }));
}

TEST(Output, AWarningOfOthersWordsIsOneLine) {
  const std::string out =
      written(stderr, [] { warn("derate: {} and {} of {}\n", kForged, kForged.c_str(), 7); });
  EXPECT_EQ(out,
            "derate: x?<0>derated: GPU 0 is on fire?]0;owned??[2J? and "
            "x?<0>derated: GPU 0 is on fire?]0;owned??[2J? of 7\n");
}

TEST(Output, WhatIsPrintedMovesNoCursor) {
  EXPECT_EQ(written(stdout, [] { print("{}\n", kForged); }),
            "x\n<0>derated: GPU 0 is on fire?]0;owned??[2J?\n");
  Table table({"name", "<other"});
  table.add({kForged, "\xc3\xa4"});
  const std::string text = table.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_NE(text.find("x?<0>derated: GPU 0 is on fire?]0;owned??[2J?  \xc3\xa4\n"), text.npos);
}

TEST(Output, JsonPrintsAndSaysTheSame) {
  const Json json = {{"name", kForged}};
  using Show = std::function<void(std::string_view, const Json&)>;
  for (const Show& show : {Show(print_json), Show(print_json_line)}) {
    const std::string out = written(stdout, [&] { show("policy list", json); });
    EXPECT_EQ(parse_json(out), with_schema("policy list", json));
    EXPECT_EQ(parse_json(out).begin().key(), "schema");
    EXPECT_EQ(parse_json(out)["schema"], "derate/policy-list/1");
    EXPECT_EQ(printing_text(out, Lines::many), out);
    EXPECT_NE(out.find("\\u009b"), out.npos);
  }
}

RC_GTEST_PROP(Output, ATerminalGetsOurColoursAndNoOtherEscape, (const std::string& text)) {
  const std::string own = "\033[31mbad\033[0m";
  const std::string out = shown_text(own + text + kForged + "\033[1;31m" + own, true);
  RC_ASSERT((out.starts_with(own) && out.ends_with("?[1;31m" + own)));
  for (auto at = out.find('\033'); at != out.npos; at = out.find('\033', at + 1)) {
    const std::string code = out.substr(at, out.find('m', at) + 1 - at);
    RC_ASSERT((code == "\033[31m" || code == "\033[0m" || code == "\033[32m" || code == "\033[2m" ||
               code == "\033[1m"));
  }
  RC_ASSERT(shown_text(out, false).find('\033') == std::string::npos);
}

TEST(Output, WhatNobodyCaughtIsALineAndAnExitCode) {
  int code = 0;
  const std::string out = written(stderr, [&] {
    code = run_outermost("derate", []() -> int { throw std::runtime_error(kForged); });
  });
  EXPECT_EQ(code, 70);
  EXPECT_EQ(out,
            "derate: a bug in Derate, please report it: x\\x0a<0>derated: GPU 0 is on fire"
            "\\x1b]0;owned\\x07\\x1b[2J\\xc2\\x9b\n");
  EXPECT_EQ(run_outermost("derate", [] { return 7; }), 7);
  EXPECT_EQ(written(stderr, [&] { code = run_outermost("derate", []() -> int { throw 1; }); }),
            "derate: a bug in Derate, please report it: an exception of no known kind\n");
}

}  // namespace
}  // namespace derate
