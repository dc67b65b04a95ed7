#include "tune/trial_writer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/test_folder.h"
#include "base/text.h"
#include "tune/trial_rows.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Where = BackgroundWorker::Where;

constexpr std::uint32_t kUser = 1000;
constexpr auto kNoReplace = TrialRegistry::Replace::no;

JobSpec job_named(const std::string& name) {
  return {.name = name, .batch_sizes = {8, 16}, .default_size = 8, .target = 0.6, .max_epochs = 5};
}

class TrialWriterTest : public testing::TestWithParam<Where> {
 protected:
  std::unique_ptr<TrialWriter> writer(TrialRegistry& book) {
    return std::make_unique<TrialWriter>(
        book, clock_,
        TrialWriterOptions{
            .file = folder_.file(),
            .log = Log([this](const LogRecord& record) { told_.push_back(record.text); }),
            .where = GetParam()});
  }
  // As a daemon that starts finds them.
  TrialRegistry kept() {
    TrialRegistry out(60s);
    (void)writer(out);
    return out;
  }
  std::string names_kept() {
    const TrialRegistry book = kept();
    std::string out;
    for (const auto& [name, job] : book.jobs()) out += name;
    return out;
  }
  void create(TrialRegistry& book, const std::string& name) {
    ASSERT_TRUE(book.create(job_named(name), kUser, kNoReplace, {}).ok());
  }

  Folder folder_;
  FakeClock clock_;
  std::vector<std::string> told_;
};

// However many rounds a write takes: what is taken up by none is in the last.
TEST_P(TrialWriterTest, TheNextDaemonFindsAllThatWasChanged) {
  TrialRegistry book(60s);
  auto writer = this->writer(book);
  EXPECT_FALSE(fs::exists(folder_.file()));
  for (const char* name : {"a", "b", "c", "d"}) {
    create(book, name);
    writer->keep();
    const auto trial = book.begin({name, {"GPU-0"}, {}, "secret"}, kUser, {}, {});
    ASSERT_TRUE(trial.ok());
    writer->keep_soon();
    ASSERT_TRUE(
        book.end((*trial)->trial.id, {kUser, "secret"}, TrialState::missed, {}, {}, {}).ok());
  }
  ASSERT_TRUE(book.remove("b", kUser).ok());
  writer.reset();
  EXPECT_EQ(kept().jobs(), book.jobs());
  EXPECT_EQ(told_, std::vector<std::string>{});
}

TEST_P(TrialWriterTest, ProfilesAreKeptWithTheBook) {
  const TuneProfileKey key{"V100-SXM2", "bert", "power-limit", 32};
  const std::vector<TuneReadingRow> readings{{150, 0.9, 140}, {250, 1, 220}};
  TrialRegistry book(60s);
  auto writer = this->writer(book);
  EXPECT_TRUE(writer->profile(key).empty());
  writer->keep_profile({key, {readings[1], readings[0]}, {}});
  EXPECT_EQ(writer->profile(key), readings);
  writer.reset();
  EXPECT_EQ(this->writer(book)->profile(key), readings);
}

// In place of the file there is a folder, for a while.
TEST_P(TrialWriterTest, WhatCouldNotBeWrittenIsWrittenWithTheNext) {
  TrialRegistry book(60s);
  auto writer = this->writer(book);
  create(book, "a");
  create(book, "gone");
  fs::create_directory(folder_.file());
  writer->keep();
  create(book, "b");
  ASSERT_TRUE(book.remove("gone", kUser).ok());
  for (int i = 0; i < 100; ++i, clock_.advance(1s)) writer->keep();
  fs::remove(folder_.file());
  writer.reset();
  EXPECT_EQ(names_kept(), "ab");
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_TRUE(told_[0].starts_with("jobs that recur are not kept: ")) << told_[0];
}

TEST_P(TrialWriterTest, AFileThatWasTakenAwayIsWrittenAnew) {
  TrialRegistry book(60s);
  auto writer = this->writer(book);
  const TuneProfileKey key{"V100-SXM2", "bert", "power-limit", 32};
  writer->keep_profile({key, {{150, 0.9, 140}}, {}});
  create(book, "a");
  writer->keep();
  writer.reset();
  writer = this->writer(book);
  fs::remove(folder_.file());
  create(book, "b");
  writer->keep();
  writer.reset();
  EXPECT_EQ(names_kept(), "ab");
  EXPECT_EQ(this->writer(book)->profile(key).size(), 1u);
}

TEST_P(TrialWriterTest, AFileThatIsNotOursIsToldAndSetAside) {
  ASSERT_TRUE(write_file_atomically(folder_.file(), "rubbish, and more of it").ok());
  EXPECT_EQ(names_kept(), "");
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_TRUE(told_[0].starts_with("jobs that recur: ")) << told_[0];
  EXPECT_EQ(folder_.asides().size(), 1u);
}

TEST_P(TrialWriterTest, RoomIsOfWhatWasWritten) {
  TrialRegistry book(60s);
  create(book, "a");
  TuneChanges rows = rows_of(book, book.take_changes());
  TuneTrialRow trial{.job = "a", .recurrence = 1, .batch_size = 8, .state = "missed"};
  trial.uid = kUser;
  trial.ended = WallTime{};
  trial.why = std::string(1 << 20, 'w');
  for (int i = 0; i < 16; ++i, ++trial.id) rows.trials.push_back(trial);
  ASSERT_TRUE(TuneStore(folder_.file()).write(rows).ok());
  auto writer = this->writer(book);
  EXPECT_EQ(writer->check_room(kUser).error().code, Errc::busy);
  EXPECT_TRUE(writer->check_room(kUser + 1).ok());
  EXPECT_TRUE(writer->check_room(0).ok());
  ASSERT_TRUE(book.remove("a", kUser).ok());
  // A write that takes its time is taken in by a later round.
  do writer->keep();
  while (!writer->check_room(kUser).ok());
  EXPECT_EQ(names_kept(), "");
}

INSTANTIATE_TEST_SUITE_P(Where, TrialWriterTest,
                         testing::Values(Where::at_once, Where::on_a_thread), [](const auto& each) {
                           return each.param == Where::at_once ? "AtOnce" : "OnAThread";
                         });

}  // namespace
}  // namespace derate
