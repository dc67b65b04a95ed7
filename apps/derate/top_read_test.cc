#include "top_read.h"

#include <gtest/gtest.h>

#include <limits>

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

// A minute of two policies in turn until `end`, without its seconds 20 to 29.
HistoryAnswer kept_minute(std::int64_t end) {
  HistoryAnswer out{.step_seconds = 1};
  for (const bool first : {true, false}) {
    HistorySeriesView series{.gpu = "GPU-0", .kind = "gpu"};
    std::vector<std::optional<double>> watts;
    for (int i = first ? 30 : 0; i < (first ? 60 : 30); ++i) {
      if (i >= 20 && i < 30) continue;
      series.begin_unix_seconds.push_back(end - 60 + i);
      watts.push_back(100 + i);
    }
    series.covered_ratio.resize(watts.size(), 1);
    series.power_watts = watts;
    out.series.push_back(std::move(series));
  }
  return out;
}

TEST(TopHistory, BeginsWithWhatTheDaemonHasKept) {
  constexpr std::int64_t kUnix = 1793512800;
  // The day's seconds begin 0.3 s before the clock's.
  const Instant now = Instant{seconds(5000)} + std::chrono::milliseconds(200);
  const WallTime wall_now = WallTime(seconds(kUnix)) + std::chrono::milliseconds(500);
  auto gpus = one_gpu(900);
  TopHistory history(seconds(1));
  history.add_past(past_readings(kept_minute(kUnix), now, wall_now));
  history.add(gpus, now);
  const Series& watts = gpus[0].power_history;
  ASSERT_EQ(watts.size(), 60u);
  EXPECT_EQ(watts[59], 900);
  EXPECT_EQ(watts[58], 159);
  EXPECT_EQ(watts[0], 101);  // a minute ago: 60 values without the one of now
  EXPECT_EQ(watts[29], 130);
  EXPECT_FALSE(watts[28]);  // nothing was kept then
  EXPECT_FALSE(watts[19]);
  EXPECT_EQ(watts[18], 119);
  EXPECT_FALSE(gpus[0].clock_history[58]);
}

TEST(TopHistory, ASecondThatIsNotKeptYetIsNoGap) {
  constexpr std::int64_t kUnix = 1793512800;
  for (const int late : {1, 2, 3}) {  // seconds
    auto gpus = one_gpu(900);
    TopHistory history(seconds(1));
    const Instant now{seconds(5000 + late)};
    history.add_past(past_readings(kept_minute(kUnix), now, WallTime(seconds(kUnix + late))));
    history.add(gpus, now);
    EXPECT_EQ(gpus[0].power_history[59], 900);
    for (int i = 58; i >= 58 - late; --i)
      EXPECT_EQ(gpus[0].power_history[static_cast<std::size_t>(i)],
                late < 3 || i == 58 - late ? std::optional(159.0) : std::nullopt)
          << late << " " << i;
  }
}

TEST(TopHistory, WhatWasReadHereGoesBeforeWhatTheDaemonHasKept) {
  constexpr std::int64_t kUnix = 1793512800;
  auto gpus = one_gpu(900);
  TopHistory history(seconds(1));
  history.add(gpus, Instant{seconds(5000)});
  // A slow daemon's answer comes three seconds later.
  history.add_past(
      past_readings(kept_minute(kUnix + 3), Instant{seconds(5003)}, WallTime(seconds(kUnix + 3))));
  gpus = one_gpu(800);
  history.add(gpus, Instant{seconds(5003)});
  EXPECT_EQ(gpus[0].power_history[59], 800);
  EXPECT_EQ(gpus[0].power_history[57], 900);
  EXPECT_FALSE(gpus[0].power_history[58]);
  EXPECT_EQ(gpus[0].power_history[56], 900);
  EXPECT_EQ(gpus[0].power_history[55], 156);
}

TEST(TopHistory, TakesNothingFromTimesThatCannotBe) {
  HistoryAnswer answer = kept_minute(1793512800);
  answer.step_seconds = 1e300;
  answer.series[0].begin_unix_seconds[0] = std::numeric_limits<std::int64_t>::max();
  answer.series[0].begin_unix_seconds[1] = std::numeric_limits<std::int64_t>::min();
  answer.series[1].kind = "tenant";
  const auto out = past_readings(answer, Instant{seconds(5000)}, WallTime(seconds(1793512800)));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out.at("GPU-0").size(), 28u);
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
  gpu["trouble"] = "nvmlDeviceGetUUID: GPU is lost";
  gpu["promised_performance_ratio"] = 0.9;
  const TopGpu lost = top_picture(Json::array({gpu})).gpus[0];
  EXPECT_TRUE(lost.trouble.starts_with("LOST since ")) << lost.trouble;
  EXPECT_FALSE(lost.promise);
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
