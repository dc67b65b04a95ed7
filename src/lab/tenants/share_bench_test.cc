#include "lab/tenants/share_bench.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

ShareBench bench_of(std::initializer_list<const char*> names, int seeds = 2) {
  ShareBench out{.seeds = seeds};
  for (const char* name : names)
    for (ShareWorldSpec& spec : share_worlds())
      if (spec.name == name) out.worlds.push_back(std::move(spec));
  for (ShareWorldSpec& spec : out.worlds) spec.length_s = std::min(spec.length_s, 600.0);
  return out;
}

// The classes that independent trials found, each by its smallest case: never far above the
// driver's utilisation alone.
TEST(ShareBench, NoClassIsFarAboveUtilisationAlone) {
  const auto results = run_share_bench(
      bench_of({"parked:15", "parked:5:worked", "light:0.1:250", "light:0.1:400", "turns:0.7:2",
                "turns:1.5:2", "swing:0.5:60", "training-inference", "clock:3", "sample:1:1"}));
  ASSERT_TRUE(results.ok());
  ASSERT_EQ(results->size(), 10u);
  for (const ShareWorldResult& one : *results) {
    EXPECT_LT(one.bill(), one.bill_of_sm_share() + 0.03) << one.world;
    EXPECT_LT(one.tick(), one.tick_of_sm_share() + 0.03) << one.world;
    if (one.world.starts_with("parked")) {
      EXPECT_LT(one.to_parked(), 0.01) << one.world;
    }
  }
}

ShareWorldResult world_of(const char* name, double bill, double of_sm_share, double parked) {
  ShareRun run;
  run.online.bill = {bill, 1};
  run.sm_share.bill = {of_sm_share, 1};
  run.online.to_parked_j = parked;
  run.online.banded = 10;
  run.online.covered = 9;
  return {name, {run}};
}

TEST(ShareBench, EachBarCanBeMissed) {
  const auto missed = [](const std::vector<ShareWorldResult>& results) {
    std::string out;
    for (const ShareBar& bar : judge_share_bars(results)) out += bar.met ? "" : bar.text + "; ";
    return out;
  };
  const ShareWorldResult good = world_of("parked:5", 0.03, 0.03, 0);
  EXPECT_EQ(missed({good, good}), "");
  EXPECT_EQ(missed({world_of("a", 0.05, 0.05, 0)}), "mean bill 5.0 %, at most 4.0; ");
  EXPECT_EQ(missed({good, world_of("a", 0.04, 0.01, 0)}),
            "bills more than 2.0 points above sm-share's: a; single runs more than 2.0 points "
            "above: 1 of 2, at most 5.0 %; ");
  EXPECT_EQ(missed({world_of("parked:5", 0.03, 0.03, 0.02)}),
            "parked contexts: beyond their contexts 2.0 %, at most 1.0; ");
  ShareWorldResult narrow = good, slow = good;
  narrow.runs[0].online.covered = 7;
  EXPECT_NE(missed({good, good, good, narrow}), "");
  slow.runs[0].online.ticks = {0.2, 1};
  EXPECT_EQ(missed({slow}), "mean of 1 worlds: ticks 20.0 %, at most 10.0; ");
}

TEST(ShareBench, FiguresAreTheSameWhateverTheThreads) {
  ShareBench bench = bench_of({"three", "turns:1.5:2"});
  bench.threads = 1;
  const auto alone = run_share_bench(bench);
  bench.threads = 4;
  const auto together = run_share_bench(bench);
  ASSERT_TRUE(alone.ok());
  ASSERT_TRUE(together.ok());
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*alone)[i].bill(), (*together)[i].bill());
    EXPECT_EQ((*alone)[i].tick(), (*together)[i].tick());
    EXPECT_EQ((*alone)[i].coverage(), (*together)[i].coverage());
  }
}

TEST(ShareBench, StopsWhereItIsTold) {
  const auto results =
      run_share_bench(bench_of({"three", "wander", "jump"}), [](std::size_t) { return false; });
  ASSERT_TRUE(results.ok());
  EXPECT_LT(results->size(), 3u);
}

}  // namespace
}  // namespace derate
