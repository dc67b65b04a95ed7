#include "store/queued_model_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <future>
#include <thread>

#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Where = BackgroundWorker::Where;

PhaseModel model_of_slope(double slope = -0.5) {
  PhaseModel out;
  out.chip = "V100-SXM2";
  out.signals = {"memory"};
  out.highest = Megahertz(1530);
  out.progress = {{slope}, {0.04}};
  return out;
}

double slope_of(const PhaseModel& model) { return model.progress.mean[0]; }

class QueuedModelCacheTest : public testing::TestWithParam<Where> {
 protected:
  std::unique_ptr<QueuedModelCache> cache() {
    return std::make_unique<QueuedModelCache>(
        folder_.file(), clock_,
        [this](const Error& error) {
          if (error.message.find("not read within") != std::string::npos)
            late_ = true;
          else
            ++told_;
        },
        GetParam());
  }
  // However long it takes on a busy machine, where something is there.
  std::vector<PhaseModel> recall(QueuedModelCache& cache) {
    late_ = false;
    auto out = cache.recall("V100-SXM2");
    while (out.empty() && late_) out = cache.recall("V100-SXM2");
    return out;
  }

  Folder folder_;
  FakeClock clock_;
  std::atomic<bool> late_ = false;
  std::atomic<int> told_ = 0;  // of the file
};

// Its id is its own from the first, and stays one row of the file.
TEST_P(QueuedModelCacheTest, AModelIsKeptUnderTheIdThatItWasGiven) {
  auto cache = this->cache();
  PhaseModel model = model_of_slope(-0.1);
  model.id = cache->keep(model);
  EXPECT_NE(model.id, 0);
  EXPECT_NE(cache->keep(model_of_slope(-0.9)), model.id);
  clock_.advance(1h);
  model.progress.mean[0] = -0.2;
  EXPECT_EQ(cache->keep(model), model.id);
  const auto found = recall(*cache);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(slope_of(found[0]), -0.2);
  EXPECT_EQ(found[0].age, 0s);
  EXPECT_EQ(slope_of(found[1]), -0.9);
  EXPECT_EQ(found[1].age, 1h);
  // As another policy knows it: the file's id.
  clock_.advance(1h);
  EXPECT_EQ(cache->keep(found[0]), found[0].id);
  EXPECT_EQ(recall(*cache).size(), 2u);
}

TEST_P(QueuedModelCacheTest, WhatWasKeptIsThereForTheNextProcess) {
  { (void)cache()->keep(model_of_slope()); }
  EXPECT_FALSE(fs::exists(folder_.file() + "-wal"));  // closed
  EXPECT_EQ(recall(*cache()).size(), 1u);
}

TEST_P(QueuedModelCacheTest, RecallMakesNoFileWhereItIsToLeaveItAlone) {
  auto cache = this->cache();
  EXPECT_TRUE(cache->recall("V100-SXM2", QueuedModelCache::IfMissing::leave).empty());
  EXPECT_FALSE(fs::exists(folder_.file()));
  cache.reset();
  this->cache()->recall("V100-SXM2");
  EXPECT_TRUE(fs::exists(folder_.file()));
}

// A folder is in the file's place, for a while: told once, and nothing is lost but the oldest.
TEST_P(QueuedModelCacheTest, WhatCannotBeWrittenIsWrittenWithTheNext) {
  auto cache = this->cache();
  fs::create_directory(folder_.file());
  PhaseModel first = model_of_slope(-100);
  first.id = cache->keep(first);
  first.progress.mean[0] = -101;
  EXPECT_EQ(cache->keep(first), first.id);
  for (int i = 1; i < 40; ++i) (void)cache->keep(model_of_slope(-i));
  EXPECT_TRUE(cache->recall("V100-SXM2").empty());
  fs::remove(folder_.file());
  const auto found = recall(*cache);
  ASSERT_EQ(found.size(), QueuedModelCache::kMostUnwritten);
  EXPECT_EQ(slope_of(found.front()), -39);
  EXPECT_EQ(slope_of(found.back()), -8);
  EXPECT_EQ(told_, 1);
}

// One that no file would take is in nobody's way.
TEST_P(QueuedModelCacheTest, AModelThatIsNotSoundIsNotTriedAgain) {
  auto cache = this->cache();
  (void)cache->keep(model_of_slope(NAN));
  (void)cache->keep(model_of_slope(-1));
  EXPECT_EQ(recall(*cache).size(), 1u);
  EXPECT_EQ(told_, 1);
}

INSTANTIATE_TEST_SUITE_P(Where, QueuedModelCacheTest,
                         testing::Values(Where::at_once, Where::on_a_thread), [](const auto& each) {
                           return each.param == Where::at_once ? "AtOnce" : "OnAThread";
                         });

// The thread stands still while it tells that the file cannot be opened, as on a disk that hangs.
// Whoever keeps and recalls meanwhile goes on, and what was kept is written when it can be.
TEST(QueuedModelCache, ADiskThatHangsHoldsNobodyUp) {
  const Folder folder;
  FakeClock clock;
  std::promise<void> hangs, goes_on;
  std::vector<std::string> told;  // on this thread
  fs::create_directory(folder.file());
  const auto tell = [&, first = std::make_shared<std::atomic<bool>>(true),
                     caller = std::this_thread::get_id()](const Error& error) {
    if (std::this_thread::get_id() == caller) return told.push_back(error.message);
    if (!first->exchange(false)) return;
    hangs.set_value();
    goes_on.get_future().wait();
  };
  QueuedModelCache cache(folder.file(), clock, tell, Where::on_a_thread);
  (void)cache.keep(model_of_slope(-1));
  hangs.get_future().wait();
  fs::remove(folder.file());
  EXPECT_TRUE(cache.recall("V100-SXM2").empty());
  EXPECT_TRUE(cache.recall("V100-SXM2").empty());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("not read within 0.5 s"), std::string::npos);
  int lost = 0;
  for (int i = 0; i < 100; ++i) lost += cache.keep(model_of_slope(-2 - i)) == 0 ? 1 : 0;
  EXPECT_EQ(lost,
            100 - (StoreWriter<int>::kMostWaiting - 2));  // the first and the recall wait, too
  ASSERT_EQ(told.size(), 2u);
  EXPECT_NE(told[1].find("models wait to be written"), std::string::npos);
  goes_on.set_value();
  // A recall that is not answered in time on a busy machine is asked again.
  std::vector<PhaseModel> found;
  while (found.empty()) found = cache.recall("V100-SXM2");
  EXPECT_EQ(found.size(), SqliteModelCache::kMostOfAChip);
  EXPECT_EQ(slope_of(found.front()), -63);
}

}  // namespace
}  // namespace derate
