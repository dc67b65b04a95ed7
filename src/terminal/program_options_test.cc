#include "terminal/program_options.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

struct ProgramOptions : testing::Test {
  bool page = false;
  std::string listen = "here";
  std::vector<std::string> hosts;
  std::optional<std::string> push;
  double silence = 10;
  std::optional<double> interval;

  ProgramUsage usage() {
    return {.name = "agent",
            .version = "1.2",
            .summary = "Serves.",
            .footer = "Signals end it.\n",
            .options = {
                {"-l,--listen", "ADDRESS", "Where", &listen},
                {"--host", "NAME", "May come again", &hosts},
                {"--page", "", "Serve it", &page},
                {"--silence", "FLOAT", "Seconds", &silence, std::pair{0.5, 600.0}},
                {.names = "--push",
                 .type = "URL",
                 .what = "Serve nothing",
                 .target = &push,
                 .excludes = {"--listen", "--page"}},
                {.names = "--interval",
                 .type = "SECONDS",
                 .what = "From push to push",
                 .target = &interval,
                 .needs = "--push"},
            }};
  }
  // Empty where the program goes on.
  std::string read(const std::vector<std::string>& words) {
    const auto end = read_options(usage(), words);
    if (!end) return "";
    EXPECT_EQ(end->exit_code, end->errors.empty() ? 0 : 2);
    if (end->errors.empty()) return end->out;
    constexpr std::string_view kHint = "\nRun with --help for more information.\n";
    EXPECT_TRUE(end->errors.ends_with(kHint)) << end->errors;
    return end->errors.substr(0, end->errors.size() - kHint.size());
  }
};

TEST_F(ProgramOptions, ReadsValues) {
  EXPECT_EQ(read({"-lthere", "--host", "a", "--host=b", "--page", "--silence", "1e1"}), "");
  EXPECT_EQ(listen, "there");
  EXPECT_EQ(hosts, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(page);
  EXPECT_EQ(silence, 10);
  EXPECT_EQ(read({"--listen", "--page", "--page=false"}), "");
  EXPECT_EQ(listen, "--page") << "what follows is its value, whatever it looks like";
  EXPECT_FALSE(page);
}

TEST_F(ProgramOptions, OneMayComeWithoutItsValue) {
  EXPECT_EQ(read({"--push", "--interval", "5"}), "");
  EXPECT_EQ(push, "");
  EXPECT_EQ(interval, 5);
  EXPECT_EQ(read({"--push", "http://a"}), "");
  EXPECT_EQ(push, "http://a");
}

TEST_F(ProgramOptions, SaysWhatIsWrong) {
  EXPECT_EQ(read({"--nope"}), "The following argument was not expected: --nope");
  EXPECT_EQ(read({"--lis", "x"}), "The following arguments were not expected: x --lis");
  EXPECT_EQ(read({"--", "x"}), "The following arguments were not expected: x --");
  EXPECT_EQ(read({"--listen"}), "--listen: 1 required ADDRESS missing");
  EXPECT_EQ(read({"--listen="}), "--listen: 1 required ADDRESS missing");
  EXPECT_EQ(read({"-l", "a", "-l", "b"}), "--listen: At Most 1 required but received 2");
  EXPECT_EQ(read({"--silence", "abc"}), "--silence: Value abc not in range 0.500000 to 600.000000");
  EXPECT_EQ(read({"--silence", "0.1", "--nope"}),
            "--silence: Value 0.1 not in range 0.500000 to 600.000000");
  EXPECT_EQ(read({"--push", "--interval", "x"}), "Could not convert: --interval = x");
  EXPECT_EQ(read({"--interval", "5", "--nope"}), "--interval requires --push");
  EXPECT_EQ(read({"--push", "-l", "x"}), "--listen excludes --push");
  EXPECT_EQ(read({"--page=perhaps"}), "--page: allowed are true and false");
}

TEST_F(ProgramOptions, HelpAndVersionComeFirst) {
  EXPECT_EQ(read({"--nope", "--version", "--help"}), "agent 1.2\n");
  EXPECT_EQ(read({"--nope", "-h"}), R"(Serves.
Usage: agent [OPTIONS]

Options:
  -h,--help                   Print this help message and exit
  --version                   Display program version information and exit
  -l,--listen ADDRESS Excludes: --push
                              Where
  --host NAME ...             May come again
  --page Excludes: --push     Serve it
  --silence FLOAT:FLOAT in [0.5 - 600]
                              Seconds
  --push URL Excludes: --listen --page
                              Serve nothing
  --interval SECONDS Needs: --push
                              From push to push

Signals end it.

)");
}

}  // namespace
}  // namespace derate
