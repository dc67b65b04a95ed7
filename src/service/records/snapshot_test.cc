#include "service/records/snapshot.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/json.h"

namespace derate {
namespace {

GpuSnapshot gpu(int index, const std::string& policy) {
  GpuSnapshot out{.id = {.index = index, .uuid = "GPU-" + std::to_string(index)}};
  out.policy = policy;
  return out;
}

TEST(Snapshot, OfARunAndOfADaemonDifferByWhatADaemonHas) {
  Snapshot run;
  run.gpus.push_back(gpu(0, "assure"));
  Json json = snapshot_json(run);
  EXPECT_FALSE(json.contains("paused"));
  EXPECT_FALSE(json.contains("loop"));
  EXPECT_EQ(json["gpus"][0]["policy"], "assure");
  EXPECT_FALSE(json["gpus"][0].contains("attribution"));

  run.paused = false;
  run.loop = LatenessFigures{7, std::chrono::milliseconds(2), std::nullopt};
  json = snapshot_json(run);
  EXPECT_EQ(json["paused"], false);
  EXPECT_EQ(json["loop"]["rounds"], 7);
  EXPECT_EQ(json["loop"]["late_p99_seconds"], 0.002);
  EXPECT_FALSE(json["loop"].contains("late_max_seconds"));
}

TEST(Snapshot, AnObservedGpuHasNoPolicy) {
  const Json json = gpu_json(gpu(0, ""));
  EXPECT_FALSE(json.contains("policy"));
  EXPECT_FALSE(json.contains("promised_performance_ratio"));
}

TEST(Snapshot, EachFieldHasItsSourceAndItsAge) {
  GpuSnapshot one = gpu(0, "assure");
  EXPECT_FALSE(gpu_json(one).contains("sources"));
  one.record.time = Instant(std::chrono::seconds(10));
  one.record.estimate.origins[Field::activity] =
      FieldOrigin{.taken = Instant(std::chrono::seconds(9)), .source = "dcgm"};
  EXPECT_EQ(gpu_json(one)["sources"],
            Json::array({{{"field", "activity"}, {"source", "dcgm"}, {"age_seconds", 1.0}}}));
}

TEST(Snapshot, AnAnswerHasItsMomentAndTheAgeOfEachReading) {
  using std::chrono::seconds;
  Snapshot all;
  for (const int index : {0, 1, 2, 3}) all.gpus.push_back(gpu(index, "assure"));
  // GPU 0 was just read, GPU 1 a minute ago, GPU 2 gives no sample now, GPU 3 was never read.
  for (const int index : {0, 1, 2}) {
    GpuSnapshot& each = all.gpus[static_cast<std::size_t>(index)];
    each.record.sample = Sample{.time = Instant(seconds(index == 0 ? 99 : 40))};
    auto picture = std::make_shared<AttributionPicture>();
    picture->id = each.id;
    picture->method = &split_methods().front();
    picture->newest.emplace();
    picture->tenants.emplace_back();
    all.attribution.push_back(std::move(picture));
  }
  all.gpus[3].id.uuid = std::string(kSimulatedUuid) + "000000000003";
  all.gpus[2].totals = GpuTotals{};
  all.gpus[2].totals->sampled = Instant(seconds(40));
  all.gpus[2].record.sample.reset();
  const AnswerMoment moment{Instant(seconds(100)), WallTime(seconds(1'000'000)), "gpu7"};
  const Json json = *status_answer(all, "", moment);
  EXPECT_EQ(json["host"], "gpu7");
  EXPECT_EQ(json["time_unix_seconds"], 1e6);
  const Json& gpus = json["gpus"];
  EXPECT_EQ(gpus[0]["read_age_seconds"], 1.0);
  EXPECT_FALSE(gpus[0].contains("stale"));
  EXPECT_EQ(gpus[0]["attribution"]["tenants"].size(), 1u);
  for (const int late : {1, 2}) {
    EXPECT_EQ(gpus[late]["read_age_seconds"], 60.0);
    EXPECT_EQ(gpus[late]["stale"], true);
    EXPECT_FALSE(gpus[late]["attribution"].contains("unallocated_watts"));
    EXPECT_TRUE(gpus[late]["attribution"]["tenants"].empty());
    EXPECT_TRUE(gpus[late]["attribution"].contains("energy_joules"));
  }
  EXPECT_FALSE(gpus[3].contains("read_age_seconds"));
  EXPECT_EQ(gpus[3]["stale"], true);
  EXPECT_EQ(gpus[3]["simulated"], true);
  EXPECT_FALSE(gpus[0].contains("simulated"));
  EXPECT_EQ((*status_answer(all, "1", moment))["gpus"].size(), 1u);
}

TEST(Snapshot, TellsWhoAssignsAndWhoBounds) {
  EXPECT_FALSE(gpu_json(gpu(0, "assure")).contains("assigned"));
  GpuSnapshot one = gpu(0, "assure");
  one.record.time = Instant(std::chrono::seconds(10));
  one.assigned = GpuSnapshot::Assigned{origins::command, "uid 7", "policy set",
                                       Instant(std::chrono::seconds(15))};
  one.bounds.push_back({.source = "budget", .who = "rack 3", .why = "", .most = 900});
  const Json json = gpu_json(one);
  EXPECT_EQ(
      json["assigned"],
      Json({{"by", "command"}, {"who", "uid 7"}, {"why", "policy set"}, {"ends_in_seconds", 5.0}}));
  EXPECT_EQ(json["bounds"],
            Json::array({{{"by", "budget"}, {"who", "rack 3"}, {"highest_clock_mhz", 900.0}}}));
}

TEST(Snapshot, AttributionComesInPages) {
  Snapshot all{.attributes = true};
  for (int i = 0; i < 3; ++i) {
    AttributionPicture picture{.id = gpu(i, "").id, .method = &split_methods().front()};
    picture.tenants.resize(kMostTenants / 2);
    all.attribution.push_back(std::make_shared<const AttributionPicture>(std::move(picture)));
  }
  const Json first = *attribution_page(all, "");
  EXPECT_EQ(first["enabled"], true);
  EXPECT_EQ(first["gpus"].size(), 2u);
  EXPECT_EQ(first["more_after"], "GPU-1");
  const Json last = *attribution_page(all, "GPU-1");
  EXPECT_EQ(last["gpus"].size(), 1u);
  EXPECT_FALSE(last.contains("more_after"));
  EXPECT_EQ(attribution_page(all, "GPU-7").error().code, Errc::not_found);
}

// A reader sees one round or another, whole, and what it holds never changes.
TEST(SnapshotBoard, IsReadWhileItIsPublished) {
  SnapshotBoard board;
  EXPECT_TRUE(board.latest()->gpus.empty());
  constexpr int kRounds = 2000;
  std::jthread loop([&] {
    for (int i = 1; i <= kRounds; ++i) {
      Snapshot next;
      next.beats.heard = static_cast<std::uint64_t>(i);
      for (int at = 0; at < 4; ++at) next.gpus.push_back(gpu(i, "assure"));
      board.publish(std::move(next));
    }
  });
  std::uint64_t before = 0;
  while (before < kRounds) {
    const auto seen = board.latest();
    ASSERT_GE(seen->beats.heard, before);
    before = seen->beats.heard;
    for (const GpuSnapshot& each : seen->gpus)
      ASSERT_EQ(static_cast<std::uint64_t>(each.id.index), before);
  }
}

}  // namespace
}  // namespace derate
