#include "top_read.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace derate::cli {
namespace {

using std::chrono::seconds;

std::vector<TopGpu> one_gpu(double watts) {
  TopGpu out;
  out.id.uuid = "GPU-0";
  out.watts = watts;
  return {out};
}

TEST(TopHistory, AReadingStandsInTheColumnOfItsSecondAndMovesOn) {
  TopHistory history(seconds(1));
  const Instant begin{seconds(100)};
  auto gpus = one_gpu(300);
  history.add(gpus, begin);
  EXPECT_EQ(gpus[0].power_history.size(), 60u);
  EXPECT_EQ(gpus[0].power_history.back(), 300);
  EXPECT_FALSE(gpus[0].power_history[58]);
  gpus = one_gpu(400);
  history.add(gpus, begin + seconds(10));
  EXPECT_EQ(gpus[0].power_history[59], 400);
  EXPECT_EQ(gpus[0].power_history[49], 300);
  EXPECT_FALSE(gpus[0].power_history[55]);  // nothing was read then
  gpus = one_gpu(500);
  history.add(gpus, begin + seconds(100));
  EXPECT_EQ(gpus[0].power_history[59], 500);
  EXPECT_FALSE(gpus[0].power_history[0]);
}

TEST(TopPicture, TakesWhatIsToldAndLeavesOutWhatHasAnotherType) {
  const Json gpus = Json::array({{{"index", 2},
                                  {"uuid", "GPU-2"},
                                  {"name", "H200"},
                                  {"power_watts", 402.5},
                                  {"factory_power_limit_watts", 700.0},
                                  {"set_power_limit_watts", 500.0},
                                  {"policy", "assure"},
                                  {"assigned", {{"by", "configuration"}}},
                                  {"trouble", "cannot lock its clock"},
                                  {"reason", "least energy"},
                                  {"saved", {{"energy_saving_ratio", 0.2}}}},
                                 {{"index", "zero"}, {"power_watts", "much"}, {"saved", 7}},
                                 "no GPU"});
  const TopPicture picture = top_picture(gpus);
  ASSERT_EQ(picture.gpus.size(), 2u);
  const TopGpu& gpu = picture.gpus[0];
  EXPECT_EQ(gpu.id.index, 2);
  EXPECT_EQ(gpu.watts, 402.5);
  EXPECT_EQ(gpu.limit_watts, 500);
  EXPECT_EQ(gpu.how, "");
  EXPECT_EQ(gpu.trouble, "cannot lock its clock");
  EXPECT_EQ(gpu.reason, "least energy");
  ASSERT_TRUE(gpu.saving);
  EXPECT_EQ(gpu.saving->ratio, 0.2);
  EXPECT_FALSE(gpu.saving->low_ratio);
  EXPECT_FALSE(picture.gpus[1].watts);
  EXPECT_FALSE(picture.gpus[1].saving);
}

Json card_json() {
  return {{"memory_used_bytes", 1.0 * (1ull << 30)},
          {"memory_total_bytes", -1},
          {"pcie_generation", 4},
          {"fan_ratio", "fast"},
          {"ecc_uncorrected_errors", 2},
          {"xid", 79},
          {"xid_text", "fell"},
          {"xid_unix_seconds", 1793512800}};
}

TEST(TopPicture, TakesOfTheCardWhatIsKnown) {
  const TopPicture picture =
      top_picture(Json::array({{{"index", 0}, {"card", card_json()}}, {{"index", 1}}}));
  ASSERT_EQ(picture.gpus.size(), 2u);
  const TopCard& card = picture.gpus[0].card;
  EXPECT_EQ(card.memory_used, 1.0 * (1ull << 30));
  EXPECT_FALSE(card.memory_total);
  EXPECT_EQ(card.link.generation, 4);
  EXPECT_FALSE(card.fan);
  EXPECT_EQ(card.uncorrected, 2);
  ASSERT_TRUE(card.xid);
  EXPECT_EQ(card.xid->code, 79);
  EXPECT_FALSE(picture.gpus[1].card.memory_used);
  EXPECT_EQ(memory_cell(card), "1.0G");
  EXPECT_EQ(memory_cell({}), "");
}

TEST(TopPicture, AGpuThatIsSilentForLongShowsNeitherItsCardNorTenants) {
  const Json attribution = {{"tenants", Json::array({{{"key", "a"}, {"power_watts", 300.0}}})}};
  Json gpu = {{"index", 0}, {"card", card_json()}, {"attribution", attribution}};
  const auto known = [&] {
    const TopPicture picture = top_picture(Json::array({gpu}));
    EXPECT_EQ(picture.tenants.size(), picture.gpus[0].card.memory_used ? 1u : 0u);
    return picture.gpus[0].card.memory_used.has_value();
  };
  EXPECT_TRUE(known());
  gpu["error"] = "GPU is lost";
  EXPECT_FALSE(known());
  gpu["silent_seconds"] = 2.9;  // one reading that failed
  EXPECT_TRUE(known());
  gpu["silent_seconds"] = 3.0;
  EXPECT_FALSE(known());
  gpu.erase("error");
  gpu["stale"] = true;
  EXPECT_FALSE(known());
}

TEST(TopPicture, HasARowForEachTenantAndOneForTheRest) {
  const Json attribution = {{"index", 1},
                            {"method", "fair"},
                            {"power_watts", 400.0},
                            {"unallocated_watts", 100.0},
                            {"tenants", Json::array({{{"key", "a"},
                                                      {"process", "train"},
                                                      {"pid", 7},
                                                      {"power_watts", 300.0},
                                                      {"sigma_watts", 10.0},
                                                      {"seconds", 90},
                                                      {"memory_bytes", 1024}}})}};
  const TopPicture picture =
      top_picture(Json::array({{{"index", 1}, {"attribution", attribution}}}));
  ASSERT_EQ(picture.tenants.size(), 2u);
  EXPECT_EQ(picture.tenants[0].name, "train (7)");
  EXPECT_NEAR(*picture.tenants[0].margin_watts, 16.45, 1e-9);
  EXPECT_EQ(picture.tenants[0].counted_s, 90);
  EXPECT_EQ(picture.tenants[0].memory_bytes, 1024);
  EXPECT_TRUE(picture.tenants[1].unallocated);
  EXPECT_EQ(picture.tenants[1].share, 0.25);
}

}  // namespace
}  // namespace derate::cli
