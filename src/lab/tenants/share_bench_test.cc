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
