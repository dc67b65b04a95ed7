#include "service/records/health.h"

#include <gtest/gtest.h>

#include "service/records/test_snapshot.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

TEST(Health, IsGoodWhileTheLoopTurnsAndGpusAreRead) {
  const Snapshot snapshot = full_snapshot(2, 1);
  EXPECT_TRUE(livez(snapshot, kFullNow).good);
  EXPECT_TRUE(readyz(snapshot, kFullNow).good);
  EXPECT_EQ(readyz(snapshot, kFullNow).reason, "all GPUs are read");
}

TEST(Health, IsBadBeforeTheFirstRoundAndWhenTheLoopStands) {
  EXPECT_FALSE(livez(Snapshot{}, kFullNow).good);
  EXPECT_EQ(livez(Snapshot{}, kFullNow).reason, "no round of the loop has ended yet");
  const Snapshot snapshot = full_snapshot(1, 0);
  EXPECT_TRUE(livez(snapshot, kFullNow + 5s).good);
  EXPECT_FALSE(livez(snapshot, kFullNow + 6s).good);
  EXPECT_EQ(readyz(snapshot, kFullNow + 6s).reason,
            "the loop does not turn: its last round was 6.0 s ago");
}

TEST(Health, APauseAndAnOpeningAreAliveAndNotReady) {
  Snapshot snapshot = full_snapshot(0, 0);
  EXPECT_TRUE(livez(snapshot, kFullNow).good);
  EXPECT_EQ(readyz(snapshot, kFullNow).reason, "the GPUs are not open yet");
  snapshot.paused = true;
  EXPECT_EQ(readyz(snapshot, kFullNow).reason,
            "paused: the GPUs are given back and closed until `derate resume`");
}

TEST(Health, AStaleSampleIsNamedWithItsReason) {
  Snapshot snapshot = full_snapshot(2, 0);
  GpuSnapshot& gpu = snapshot.gpus[1];
  gpu.record.sample.reset();
  gpu.record.sample_error = "the driver has no answer";
  gpu.totals->sampled = kFullNow - 6s;
  Health ready = readyz(snapshot, kFullNow);
  EXPECT_FALSE(ready.good);
  EXPECT_EQ(ready.reason, "samples are stale: GPU 1 (" + gpu.id.uuid +
                              "): the last sample is 6.0 s old: the driver has no answer");
  // One that is read each ten seconds is not stale after six.
  gpu.totals->due_within = 20s;
  EXPECT_TRUE(readyz(snapshot, kFullNow).good);
  gpu.totals->sampled.reset();
  ready = readyz(snapshot, kFullNow);
  EXPECT_FALSE(ready.good);
  EXPECT_NE(ready.reason.find("nothing has been read yet"), std::string::npos) << ready.reason;
}

TEST(Health, LostGpusAreNamedAndAFailureOnlyWhenAllAre) {
  Snapshot snapshot = full_snapshot(2, 0);
  snapshot.gpus[0].totals->lost = true;
  snapshot.gpus[0].record.sample_error = "GPU is lost";
  Health ready = readyz(snapshot, kFullNow);
  EXPECT_TRUE(ready.good);
  EXPECT_EQ(ready.reason, "the other GPUs are read; GPU 0 (" + snapshot.gpus[0].id.uuid +
                              ") is lost: GPU is lost");
  snapshot.gpus[1].totals->lost = snapshot.gpus[1].totals->stuck = true;
  ready = readyz(snapshot, kFullNow);
  EXPECT_FALSE(ready.good);
  EXPECT_NE(ready.reason.find("all GPUs are lost"), std::string::npos) << ready.reason;
  EXPECT_NE(ready.reason.find("is stuck"), std::string::npos) << ready.reason;
}

TEST(Health, AServiceThatGovernsNothingSaysSo) {
  Snapshot snapshot = full_snapshot(1, 0);
  snapshot.trouble = "the configuration says govern, and no GPU is governed: GPU '7' is not here";
  const Health ready = readyz(snapshot, kFullNow);
  EXPECT_TRUE(ready.good);
  EXPECT_EQ(ready.reason, "all GPUs are read; " + snapshot.trouble);
}

TEST(Health, AGpuThatHasGoneIsNamed) {
  Snapshot snapshot = full_snapshot(1, 0);
  snapshot.away.push_back({full_id(7), {}});
  const Health ready = readyz(snapshot, kFullNow);
  EXPECT_TRUE(ready.good);
  EXPECT_NE(ready.reason.find("is not here any more"), std::string::npos) << ready.reason;
}

}  // namespace
}  // namespace derate
