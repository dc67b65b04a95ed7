#include "tune/metric_reader.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

MetricReader reader(const MetricReaderOptions& options = {}) {
  return *MetricReader::create(options);
}

TEST(MetricReader, ReadsItsOwnFormatAnywhereInALine) {
  MetricReader read = reader();
  const MetricNews all = read.line("[rank0] derate: epoch=3 metric=0.61 steps=1200");
  EXPECT_EQ(all.epoch, 3);
  EXPECT_EQ(all.metric, 0.61);
  EXPECT_EQ(all.steps, 1200);
  EXPECT_EQ(read.line("derate: steps=5").steps, 5);
  EXPECT_TRUE(read.line("epoch=3 metric=0.61").empty());
  EXPECT_TRUE(read.line("derate: nothing of ours").empty());
}

TEST(MetricReader, CountsEpochsWhereNoPatternTellsThem) {
  MetricReader read = reader({.metric_pattern = "acc: ([0-9.]+)"});
  EXPECT_TRUE(read.line("loss: 0.3").empty());
  EXPECT_EQ(read.line("acc: 0.5").epoch, 1);
  const MetricNews second = read.line("acc: 0.625 of 1");
  EXPECT_EQ(second.epoch, 2);
  EXPECT_EQ(second.metric, 0.625);
}

TEST(MetricReader, AnEpochOfAnEarlierLineIsTheMetrics) {
  MetricReader read =
      reader({.metric_pattern = "acc: ([0-9.]+)", .epoch_pattern = "epoch ([0-9]+)"});
  EXPECT_EQ(read.line("epoch 7").epoch, 7);
  EXPECT_EQ(read.line("acc: 0.5").epoch, 7);
}

TEST(MetricReader, WhatLooksLikeAMetricAndIsNoneIsToldOnce) {
  MetricReader read = reader();
  EXPECT_FALSE(read.line("derate: metric=nan").metric);
  EXPECT_EQ(read.take_complaint(), "metric or epoch 'nan': allowed is a finite number");
  EXPECT_FALSE(read.take_complaint());
}

TEST(MetricReader, MemoryThatIsNotEnoughIsKnownByWhatIsPrinted) {
  MetricReader read = reader({.oom_patterns = {"no more HBM"}});
  (void)read.line("all is well");
  EXPECT_FALSE(read.out_of_memory());
  (void)read.line("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate");
  EXPECT_TRUE(read.out_of_memory());
  MetricReader own = reader({.oom_patterns = {"no more HBM"}});
  (void)own.line("error: no more HBM");
  EXPECT_TRUE(own.out_of_memory());
}

TEST(MetricReader, OfAFileTheLastWholeLineCounts) {
  MetricReader read = reader();
  EXPECT_TRUE(read.file("0.5").empty());  // it has no end yet
  const MetricNews first = read.file("0.5\n");
  EXPECT_EQ(first.metric, 0.5);
  EXPECT_EQ(first.epoch, 1);
  EXPECT_TRUE(read.file("0.5\n").empty());  // no news
  EXPECT_EQ(read.file("0.5\n0.6\n0.7\n").epoch, 3);
}

TEST(MetricReader, WhatStoodInTheFileBeforeIsOfAnotherRun) {
  MetricReader read = reader();
  read.file_before("0.5\n0.6\n");
  EXPECT_TRUE(read.file("0.5\n0.6\n").empty());
  const MetricNews news = read.file("0.5\n0.6\n0.7\n");
  EXPECT_EQ(news.metric, 0.7);
  EXPECT_EQ(news.epoch, 1);
}

TEST(MetricReader, ABadPatternIsNamed) {
  const auto bad = MetricReader::create({.metric_pattern = "acc: ("});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Errc::invalid_argument);
  EXPECT_EQ(bad.error().message.find("--metric-pattern: pattern 'acc: ('"), 0u);
}

}  // namespace
}  // namespace derate
