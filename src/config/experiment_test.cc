#include "config/experiment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/test_page.h"

namespace derate {
namespace {

constexpr const char* kSmall =
    "[gpus]\nchips = [\"V100-SXM2\"]\n[workloads]\nfitted = [\"*\"]\n[[policy]]\nname = "
    "\"geepafs\"\n";

std::string refused(const std::string& text) {
  const auto parsed = parse_experiment(text, "x.toml");
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(Experiment, SaysWhatIsMeant) {
  const auto e = parse_experiment(std::string(kSmall) +
                                      "label = \"p95\"\nset = {delta = 0.05}\n[stress]\n"
                                      "counter_window_s = [0.5, 1]\ntenants = 2\n",
                                  "x.toml");
  ASSERT_TRUE(e.ok()) << e.error().message;
  EXPECT_EQ(e->chips, std::vector<std::string>{"V100-SXM2"});
  EXPECT_EQ(e->counter_window_s, (std::vector<double>{0.5, 1}));
  EXPECT_EQ(e->tenants, std::vector<double>{2});
  EXPECT_EQ(e->repetitions, 3);
  ASSERT_EQ(e->policies.size(), 1u);
  EXPECT_EQ(e->policies[0].label, "p95");
  EXPECT_EQ(e->policies[0].set, std::vector<std::string>{"delta=0.05"});
  EXPECT_EQ(e->place_of("stress.tenants"), "x.toml:11:11");
}

TEST(Experiment, PrintsWhatItReads) {
  const auto e = parse_experiment(
      std::string(kSmall) +
          "set = {delta = 0.05, probe_clocks = [952, 1147]}\nlabel = \"a \\\"b\\\"\"\n"
          "[experiment]\nname = \"\\uCEAA \\U0001F600\"\nseed = 7\n",
      "x.toml");
  ASSERT_TRUE(e.ok()) << e.error().message;
  const std::string once = print_experiment(*e);
  const auto again = parse_experiment(once, "y.toml");
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << once;
  EXPECT_EQ(print_experiment(*again), once);
  EXPECT_EQ(again->policies[0].set, e->policies[0].set);
  EXPECT_EQ(again->seed, 7);
}

// Each place has its keys; what a file of one prints is a file of the same.
TEST(Experiment, KnowsWhatBelongsWhere) {
  const std::string real =
      "[experiment]\nplace = \"real\"\n[gpus]\ngpu = \"1\"\n[[policy]]\nname = "
      "\"nv-boost\"\n[[command]]\nname = \"a\"\nrun = \"true\"\n";
  const auto e = parse_experiment(real, "x.toml");
  ASSERT_TRUE(e.ok()) << e.error().message;
  const auto again = parse_experiment(print_experiment(*e), "y.toml");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->gpu, "1");
  ASSERT_EQ(again->commands.size(), 1u);
  EXPECT_EQ(again->commands[0].run, "true");

  const std::string small = kSmall, served = small + "[experiment]\nplace = \"served\"\n";
  EXPECT_TRUE(parse_experiment(served, "x.toml").ok());
  EXPECT_EQ(refused(served + "[stress]\ncounter_window_s = 1\n"),
            "x.toml:10:20: not in place served");
  EXPECT_EQ(refused(real + "[workloads]\nfitted = \"*\"\n"), "x.toml:11:10: not in place real");
  EXPECT_EQ(refused("[gpus]\nchips = \"H200\"\ngpu = \"0\"\n"), "x.toml:3:7: not in place virtual");
  EXPECT_NE(refused("[experiment]\nplace = \"real\"\n[[policy]]\nname = \"nv-boost\"\n")
                .find("no commands"),
            std::string::npos);
}

// Each names the place, the value and what is allowed.
TEST(Experiment, RefusesWhatMakesNoSense) {
  const std::string small = kSmall;
  EXPECT_EQ(refused("[jobs]\nwork_s = -3\n"),
            "x.toml:2:10: work_s -3: wanted a number in [1, 86400] s");
  EXPECT_NE(refused("[jobs]\nlength = 3\n")
                .find("x.toml:2:10: unknown key 'length' in [jobs]; "
                      "there are work_s, warm_up_s, idle_s"),
            std::string::npos);
  EXPECT_NE(refused("[job]\n").find("unknown section [job]; did you mean 'jobs'?"),
            std::string::npos);
  EXPECT_EQ(refused(small + "[experiment]\nplace = \"cloud\"\n"),
            "x.toml:8:9: \"cloud\": allowed are virtual, served, real");
  EXPECT_NE(refused(small + "[[policy]]\nname = \"geepafs\"\n").find("a second policy is labelled"),
            std::string::npos);
  EXPECT_NE(refused(small + "[experiment]\nrepetitions = 1.5\n").find("wanted an integer"),
            std::string::npos);
  EXPECT_NE(
      refused("[gpus]\nchips = [\"H200\"]\n[[policy]]\nname = \"geepafs\"\n").find("no workloads"),
      std::string::npos);
  EXPECT_NE(refused("[gpus]\nchips = []\n").find("an empty list"), std::string::npos);
  EXPECT_NE(refused(small + "[[command]]\nname = \"a\"\nrun = \"true\"\n").find("place real"),
            std::string::npos);
  EXPECT_NE(refused(small + "[stress]\ncounter_frozen_every_s = 10\n").find("not for how long"),
            std::string::npos);
  EXPECT_NE(refused(small + "[stress]\nheld_at_start = 0.5\n").find("not for how long"),
            std::string::npos);
  EXPECT_NE(refused("[gpus]\nchips = \"H200\"\n[workloads]\nfitted = \"*\"\npairs_only = \"yes\"\n"
                    "[[policy]]\nname = \"geepafs\"\n")
                .find("no pairs"),
            std::string::npos);
  EXPECT_NE(refused("[[policy]]\nlabel = \"x\"\n").find("without a name"), std::string::npos);
}

// docs/lab.md has the axes of [stress] as they are declared; DERATE_WRITE_DOCS=1 writes them.
TEST(Experiment, ThePageHasEveryAxisOfStress) {
  std::string table = "| key | values | effect |\n|---|---|---|\n";
  Experiment e;
  visit_experiment(e, [&](const SettingInfo& info, auto&) {
    if (info.section != std::string_view("stress")) return;
    table += fmt::format("| `{}` | {} to {}{}{} | {} |\n", info.key, info.lowest, info.highest,
                         *info.unit == '\0' ? "" : " ", info.unit, info.summary);
  });
  expect_part(std::filesystem::path(DERATE_SOURCE_DIR) / "docs/lab.md", "<!-- stress -->\n",
              "<!-- end of stress -->\n", table);
}

// A key that changes nothing without another one is refused, and so are two that contradict each
// other.
TEST(Experiment, RefusesKeysOfJobsThatMeanNothingAlone) {
  const std::string small = kSmall;
  const auto alone = [&](const std::string& line) { return refused(small + "[stress]\n" + line); };
  EXPECT_EQ(alone("launch_drift = 0.1\n"),
            "x.toml:8:16: means nothing alone: set [workloads] launches as well");
  EXPECT_NE(alone("launch_wave_s = 20\n").find("set launch_wave as well"), std::string::npos);
  EXPECT_NE(alone("phase_spread = 1\n").find("set phase_pairs as well"), std::string::npos);
  EXPECT_NE(alone("change_s = 60\n").find("set change_pairs as well"), std::string::npos);
  EXPECT_NE(alone("power_limit_every_s = 9\n").find("set power_limit_w as well"),
            std::string::npos);
  EXPECT_NE(alone("gap_s = 0\nidle_s = 5\n").find("idle_s is set as well"), std::string::npos);
  const std::string pairs =
      "[gpus]\nchips = \"H200\"\n[[policy]]\nname = \"geepafs\"\n[workloads]\nchange_pairs = ";
  EXPECT_NE(refused(pairs + "[\"a\"]\n").find("no pair"), std::string::npos);
  EXPECT_NE(refused(pairs + "[\"a\", \"b\"]\n[stress]\nchange_s = 600\n").find("of 120 s holds"),
            std::string::npos);
  EXPECT_NE(refused(pairs + "[\"a\", \"b\"]\n[stress]\ngpus = [1, 2]\n").find("on one GPU"),
            std::string::npos);
  EXPECT_TRUE(parse_experiment(pairs + "[\"a\", \"b\"]\n", "x.toml").ok());
}

}  // namespace
}  // namespace derate
