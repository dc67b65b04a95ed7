#include "store/lab_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class LabStoreTest : public testing::Test {
 protected:
  LabStore store() const {
    auto store = LabStore::create(path_);
    CHECK(store.ok());
    return *std::move(store);
  }
  const Folder home_;
  const std::string folder_ = home_.path(), path_ = folder_ + "/a.lab";
};

JobRecord some_job(const std::string& app) {
  JobRecord job;
  job.app = app;
  job.time = 1500ms;
  job.work = 1.25;
  job.energy = Joules(321.5);
  job.clock_changes = 3;
  job.probing = 200ms;
  job.temperature_at_start = Celsius(41.5);
  job.mean_clock = Megahertz(1012.5);
  job.activity.tensor = Fraction(0.25);
  job.work_unit = "TFLOP";
  job.ticks = {{.time_s = 0.1f, .clock_mhz = 1147.5f, .power_w = 210.4f},
               {.time_s = 0.2f,
                .clock_mhz = 952,
                .power_w = 100,
                .asked_mhz = 952.f,
                .gpu_utilisation = 0.99f,
                .memory_utilisation = 0.f,
                .probing = true}};
  job.remarks = {{0, "why \"so\""}, {1, "then"}};
  return job;
}

TEST_F(LabStoreTest, GivesBackWhatItWasGiven) {
  LabStore store = this->store();
  JobRecord sensed = some_job("GeMM");
  sensed.sensed_energy = Joules(300);
  ASSERT_TRUE(store.add({"V100", "window 1 s", "geepafs", 2}, {some_job("FFT"), sensed}).ok());
  const auto jobs = store.jobs();
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].session, (SessionKey{"V100", "window 1 s", "geepafs", 2}));
  EXPECT_FALSE((*jobs)[0].job.sensed_energy);
  EXPECT_EQ((*jobs)[1].job.sensed_energy, Joules(300));
  const auto one = store.job((*jobs)[1].id);
  ASSERT_TRUE(one.ok());
  const JobRecord& job = one->job;
  EXPECT_EQ(job.app, "GeMM");
  EXPECT_EQ(job.time, sensed.time);
  EXPECT_EQ(job.work, sensed.work);
  EXPECT_EQ(job.energy, sensed.energy);
  EXPECT_EQ(job.probing, sensed.probing);
  EXPECT_EQ(job.temperature_at_start, sensed.temperature_at_start);
  EXPECT_EQ(job.mean_clock, sensed.mean_clock);
  EXPECT_EQ(job.activity, sensed.activity);
  EXPECT_EQ(job.work_unit, "TFLOP");
  ASSERT_EQ(job.ticks.size(), 2u);
  EXPECT_NEAR(job.ticks[0].clock_mhz, 1147.5, 0.01);
  EXPECT_FALSE(job.ticks[0].asked_mhz || job.ticks[0].gpu_utilisation);
  EXPECT_EQ(job.ticks[1].asked_mhz, 952.f);
  EXPECT_EQ(job.ticks[1].memory_utilisation, 0.f);
  EXPECT_TRUE(job.ticks[1].probing);
  ASSERT_EQ(job.remarks.size(), 2u);
  EXPECT_EQ(job.remarks[0].text, "why \"so\"");
  EXPECT_FALSE(store.job(99).ok());
}

// A session is there whole or not at all, and once.
TEST_F(LabStoreTest, ASessionIsThereOnce) {
  LabStore store = this->store();
  ASSERT_TRUE(store.add({"V100", "", "geepafs", 0}, {some_job("FFT")}).ok());
  EXPECT_FALSE(store.add({"V100", "", "geepafs", 0}, {some_job("FFT"), some_job("GeMM")}).ok());
  EXPECT_EQ(store.jobs()->size(), 1u);
  EXPECT_EQ(store.sessions()->size(), 1u);
}

TEST_F(LabStoreTest, NotesOutliveIt) {
  EXPECT_EQ(*store().note("experiment"), "");
  { EXPECT_TRUE(store().set_note("experiment", "[x]\n").ok()); }
  EXPECT_EQ(*store().note("experiment"), "[x]\n");
}

TEST_F(LabStoreTest, OtherFilesAreRefused) {
  EXPECT_EQ(LabStore::open(path_).error().code, Errc::not_found);
  ASSERT_TRUE(write_file_atomically(path_, std::string(4096, 'x'), Durable::no).ok());
  const auto rubbish = LabStore::open(path_);
  ASSERT_FALSE(rubbish.ok());
  EXPECT_EQ(rubbish.error().code, Errc::bad_data);
  EXPECT_NE(rubbish.error().message.find(path_), std::string::npos);
  EXPECT_EQ(LabStore::create(folder_ + "/no/such").error().code, Errc::io);
}

}  // namespace
}  // namespace derate
