#include "store/model_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>

#include "base/errc_word.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/test_sql.h"
#include "base/text.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class ModelCacheTest : public testing::Test {
 protected:
  std::unique_ptr<SqliteModelCache> cache(const std::string& path) {
    return std::make_unique<SqliteModelCache>(path, clock_,
                                              [this](const Error& e) { told_.push_back(e); });
  }
  std::unique_ptr<SqliteModelCache> cache() { return cache(folder_.file()); }

  Folder folder_;
  FakeClock clock_;
  std::vector<Error> told_;
};

PhaseModel some_model(double slope = -0.5) {
  PhaseModel out;
  out.chip = "V100-SXM2";
  out.signals = {"memory", "fp32"};
  out.highest = Megahertz(1530);
  out.gpu_utilisation = 0.75;
  out.progress = {{slope, 0.1}, {0.04, 0.01, 0.09}};
  out.with_power = {{slope}, {1e-300}};
  out.saturated = true;
  return out;
}

// Any double that is finite, by its bits: -0 and the smallest too.
rc::Gen<double> any_finite() {
  return rc::gen::map(
      rc::gen::suchThat(
          rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint64_t>()),
          [](std::uint64_t bits) { return std::isfinite(std::bit_cast<double>(bits)); }),
      [](std::uint64_t bits) { return std::bit_cast<double>(bits); });
}

BeliefModel any_belief() {
  BeliefModel out;
  const auto n = *rc::gen::inRange<std::size_t>(0, 14);
  for (std::size_t i = 0; i < n; ++i) {
    out.mean.push_back(*any_finite());
    for (std::size_t j = 0; j <= i; ++j)
      out.covariance.push_back(i == j ? std::abs(*any_finite()) : *any_finite());
  }
  return out;
}

PhaseModel any_model() {
  PhaseModel out;
  const auto name = rc::gen::container<std::string>(rc::gen::inRange<char>(' ', '~'));
  out.chip = *rc::gen::nonEmpty(name);
  out.signals = *rc::gen::container<std::vector<std::string>>(name);
  out.highest = Megahertz(*any_finite());
  out.reference_x = *any_finite();
  out.gpu_utilisation = *any_finite();
  out.progress = any_belief();
  out.with_power = any_belief();
  out.power_curve = any_belief();
  out.saturated = *rc::gen::arbitrary<bool>();
  return out;
}

// Every bit of every number, in order.
std::vector<std::uint64_t> bits_of(const PhaseModel& model) {
  std::vector<std::uint64_t> out;
  const auto add = [&](double value) { out.push_back(std::bit_cast<std::uint64_t>(value)); };
  for (const double value : {model.highest.value(), model.reference_x, model.gpu_utilisation})
    add(value);
  for (const auto* belief : {&model.progress, &model.with_power, &model.power_curve})
    for (const auto* list : {&belief->mean, &belief->covariance}) {
      out.push_back(list->size());
      for (const double value : *list) add(value);
    }
  return out;
}

RC_GTEST_PROP(ModelCache, AnyFiniteModelComesBackBitForBit, ()) {
  const PhaseModel model = any_model();
  const Folder folder;
  const FakeClock clock;
  const std::int64_t id = SqliteModelCache(folder.file(), clock).keep(model);
  RC_ASSERT(id > 0);
  const auto found = SqliteModelCache(folder.file(), clock).recall(model.chip);
  RC_ASSERT(found.size() == 1u);
  RC_ASSERT(found[0].id == id);
  RC_ASSERT(found[0].chip == model.chip);
  RC_ASSERT(found[0].signals == model.signals);
  RC_ASSERT(found[0].saturated == model.saturated);
  RC_ASSERT(bits_of(found[0]) == bits_of(model));
}

// One number of any kind that is none, a negative variance, a shape that is no covariance.
RC_GTEST_PROP(ModelCache, WhatIsNotSoundIsRefused, ()) {
  PhaseModel model = any_model();
  model.progress = {{1, 2}, {1, 0, 1}};
  const double none = *rc::gen::element(std::numeric_limits<double>::quiet_NaN(),
                                        std::numeric_limits<double>::infinity());
  double* const places[] = {&model.reference_x, &model.gpu_utilisation, &model.progress.mean[1],
                            &model.progress.covariance[1]};
  const int kind = *rc::gen::inRange(0, 6);
  if (kind < 4)
    *places[kind] = none;
  else if (kind == 4)
    model.progress.covariance[2] = -1e-9;
  else
    model.progress.covariance.pop_back();
  const Folder folder;
  const FakeClock clock;
  SqliteModelCache cache(folder.file(), clock);
  RC_ASSERT(!is_sound(model));
  RC_ASSERT(cache.keep(model) == 0);
  RC_ASSERT(cache.recall(model.chip).empty());
}

TEST_F(ModelCacheTest, TheNewestComesFirstAndWithItsAge) {
  auto cache = this->cache();
  const auto first = cache->keep(some_model(-0.1));
  clock_.advance(60s);
  PhaseModel other = some_model(-0.2);
  const auto second = cache->keep(other);
  other.chip = "H200";
  cache->keep(other);
  clock_.advance(1h);
  auto found = cache->recall("V100-SXM2");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].id, second);
  EXPECT_EQ(found[0].age, 1h);
  EXPECT_EQ(found[1].id, first);
  EXPECT_EQ(found[1].age, 1h + 60s);
  // In place of the one of the same id, and young again.
  found[1].progress.mean[0] = -0.15;
  EXPECT_EQ(cache->keep(found[1]), first);
  found = cache->recall("V100-SXM2");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].id, first);
  EXPECT_EQ(found[0].progress.mean[0], -0.15);
  EXPECT_EQ(found[0].age, 0s);
  clock_.step_wall(-2h);
  EXPECT_EQ(cache->recall("V100-SXM2")[0].age, 0s);
  EXPECT_EQ(cache->all()->size(), 3u);
}

TEST_F(ModelCacheTest, TheOldestOfAChipGo) {
  auto cache = this->cache();
  PhaseModel other = some_model();
  other.chip = "H200";
  EXPECT_GT(cache->keep(other), 0);
  for (int i = 0; i < 40; ++i, clock_.advance(1s)) EXPECT_GT(cache->keep(some_model(-i)), 0);
  const auto found = cache->recall("V100-SXM2");
  ASSERT_EQ(found.size(), SqliteModelCache::kMostOfAChip);
  EXPECT_EQ(found.front().progress.mean[0], -39);
  EXPECT_EQ(found.back().progress.mean[0], -8);
  EXPECT_EQ(cache->recall("H200").size(), 1u);
}

TEST_F(ModelCacheTest, WhatIsTooOldIsNotGivenAndNoClockDeletesIt) {
  auto cache = this->cache();
  cache->keep(some_model(-0.1));
  clock_.advance(SqliteModelCache::kOldest - 1s);
  EXPECT_EQ(cache->recall("V100-SXM2").size(), 1u);
  clock_.advance(1s);
  EXPECT_TRUE(cache->recall("V100-SXM2").empty());
  EXPECT_GT(cache->keep(some_model(-0.2)), 1);
  EXPECT_EQ(cache->recall("V100-SXM2").size(), 1u);
  // The clock was a month ahead: now it is right.
  clock_.step_wall(-SqliteModelCache::kOldest);
  EXPECT_EQ(cache->recall("V100-SXM2").size(), 2u);
}

// What was kept while the clock was years ahead does not keep the place of what comes after.
TEST_F(ModelCacheTest, WhatIsFromTheFutureGoesFirst) {
  auto cache = this->cache();
  clock_.step_wall(24h * 4000);
  for (int i = 0; i < 32; ++i) EXPECT_GT(cache->keep(some_model(-1)), 0);
  clock_.step_wall(-24h * 4000);
  for (int i = 0; i < 32; ++i) EXPECT_GT(cache->keep(some_model(-2)), 0);
  const auto found = cache->recall("V100-SXM2");
  ASSERT_EQ(found.size(), SqliteModelCache::kMostOfAChip);
  for (const PhaseModel& model : found) EXPECT_EQ(model.progress.mean[0], -2);
}

// Of another form, or spoiled by someone else: not given, and in nobody's way.
TEST_F(ModelCacheTest, WhatAnotherWroteIsNotTaken) {
  auto cache = this->cache();
  const auto id = cache->keep(some_model());
  if (run_sql(folder_.file(), "UPDATE model SET form = 99, numbers = zeroblob(24)") != 0)
    GTEST_SKIP() << "no sqlite3 here";
  EXPECT_TRUE(cache->recall("V100-SXM2").empty());
  EXPECT_NE(cache->keep(some_model()), id);
  EXPECT_EQ(cache->recall("V100-SXM2").size(), 1u);
  for (const char* spoiled :
       {"x'000000000000f07f0000000000000000'", "x'00'", "zeroblob(8000000)"}) {
    run_sql(folder_.file(), "UPDATE model SET progress = " + std::string(spoiled));
    EXPECT_TRUE(cache->recall("V100-SXM2").empty()) << spoiled;
  }
  EXPECT_TRUE(told_.empty());
}

// The newest waits for its time, and is written in the end.
TEST_F(ModelCacheTest, OneModelIsWrittenSeldom) {
  auto cache = this->cache(), reader = this->cache();
  PhaseModel model = some_model(-0.1);
  model.id = cache->keep(model);
  clock_.advance(5s);
  model.progress.mean[0] = -0.2;
  EXPECT_EQ(cache->keep(model), model.id);
  EXPECT_EQ(reader->recall("V100-SXM2")[0].progress.mean[0], -0.1);
  clock_.advance(6s);
  EXPECT_GT(cache->keep(some_model(-0.3)), 0);  // another's turn is its chance
  EXPECT_EQ(reader->recall("V100-SXM2")[1].progress.mean[0], -0.2);
  EXPECT_EQ(reader->recall("V100-SXM2")[1].age, 6s);  // since it was told
  clock_.advance(1s);
  model.progress.mean[0] = -0.4;
  EXPECT_EQ(cache->keep(model), model.id);
  EXPECT_EQ(reader->recall("V100-SXM2")[0].progress.mean[0], -0.3);
  cache.reset();
  EXPECT_EQ(reader->recall("V100-SXM2")[0].progress.mean[0], -0.4);
}

TEST_F(ModelCacheTest, TwoProcessesShareIt) {
  auto one = this->cache(), other = this->cache();
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 10; ++i) {
    ids.push_back(one->keep(some_model(-i)));
    ids.push_back(other->keep(some_model(-i - 0.5)));
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  EXPECT_GT(ids.front(), 0);
  EXPECT_EQ(one->recall("V100-SXM2"), other->recall("V100-SXM2"));
  EXPECT_EQ(one->recall("V100-SXM2").size(), 20u);
  EXPECT_TRUE(told_.empty());
}

TEST_F(ModelCacheTest, AFileThatIsNotOursIsSetAside) {
  const std::string rubbish[] = {std::string(4096, 'x'), "SQLite format 3"};
  for (const std::string& text : rubbish) {
    told_.clear();
    ASSERT_TRUE(write_file_atomically(folder_.file(), text, Durable::no).ok());
    auto cache = this->cache();
    EXPECT_FALSE(cache->all().ok());
    EXPECT_TRUE(told_.empty());  // looking changes nothing
    EXPECT_GT(cache->keep(some_model()), 0);
    ASSERT_EQ(told_.size(), 1u);
    EXPECT_EQ(told_[0].code, Errc::bad_data);
    EXPECT_NE(told_[0].message.find("set aside"), std::string::npos);
    const auto asides = folder_.asides();
    EXPECT_TRUE(std::any_of(asides.begin(), asides.end(),
                            [&](const std::string& each) { return *read_file(each) == text; }));
    EXPECT_EQ(cache->recall("V100-SXM2").size(), 1u);
  }
}

// Broken while it is open: pages of the middle are overwritten.
TEST_F(ModelCacheTest, AFileThatBreaksIsBegunAnew) {
  { EXPECT_GT(cache()->keep(some_model()), 0); }
  const std::string whole = *read_file(folder_.file());
  std::string broken = whole;
  for (std::size_t at = 4096; at < broken.size(); ++at) broken[at] = static_cast<char>(at);
  ASSERT_TRUE(write_file_atomically(folder_.file(), broken, Durable::no).ok());
  auto cache = this->cache();
  EXPECT_TRUE(cache->recall("V100-SXM2").empty());
  EXPECT_EQ(told_.size(), 1u);
  EXPECT_GT(cache->keep(some_model()), 0);
  EXPECT_EQ(cache->recall("V100-SXM2").size(), 1u);
}

TEST_F(ModelCacheTest, AFileThatIsTakenAwayIsMadeAgain) {
  auto cache = this->cache();
  EXPECT_GT(cache->keep(some_model()), 0);
  fs::remove(folder_.file());
  EXPECT_GT(cache->keep(some_model()), 0);
  EXPECT_EQ(this->cache()->recall("V100-SXM2").size(), 1u);
  EXPECT_TRUE(told_.empty());
}

TEST_F(ModelCacheTest, ANewerFileIsLeftAlone) {
  { EXPECT_GT(cache()->keep(some_model()), 0); }
  if (run_sql(folder_.file(), "PRAGMA user_version = 99") != 0) GTEST_SKIP() << "no sqlite3 here";
  auto cache = this->cache();
  EXPECT_TRUE(cache->recall("V100-SXM2").empty());
  EXPECT_EQ(cache->keep(some_model()), 0);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_NE(told_[0].message.find("newer"), std::string::npos);
  EXPECT_TRUE(folder_.asides().empty());
}

TEST_F(ModelCacheTest, WhereNothingCanBeWrittenItSaysSoOnce) {
  auto cache = this->cache("/proc/derate/models.db");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cache->keep(some_model()), 0);
    EXPECT_TRUE(cache->recall("V100-SXM2").empty());
  }
  EXPECT_EQ(told_.size(), 1u);
}

TEST(ModelCacheRights, AMissingRightIsCalledOne) {
  const auto told_without_rights = [] {
    const Folder folder;
    const FakeClock clock;
    std::string told;
    const auto kept = [&](const std::string& path) {
      SqliteModelCache cache(path, clock,
                             [&](const Error& e) { told += std::string(word_of(e.code)) + " "; });
      return cache.keep(some_model()) > 0;
    };
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
    if (kept(folder.file()) || kept(folder.file("below/models.db"))) told += "kept ";
    fs::permissions(folder.path(), fs::perms::owner_all);
    if (!kept(folder.file())) told += "not kept ";
    fs::permissions(folder.file(), fs::perms::none);
    if (kept(folder.file())) told += "kept ";
    return told;
  };
  EXPECT_EQ(as_who_is_not_root(told_without_rights), "no_permission no_permission no_permission ");
}

// A limit of file sizes is a full disk that one process has for itself.
TEST_F(ModelCacheTest, AFullDiskIsToldOnceAndOver) {
  auto cache = this->cache();
  EXPECT_GT(cache->keep(some_model()), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit full = before;
  full.rlim_cur = 1;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(cache->keep(some_model()));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ids, std::vector<std::int64_t>(3, 0));
  EXPECT_EQ(told_.size(), 1u);
  EXPECT_GT(cache->keep(some_model()), 0);
  EXPECT_EQ(cache->recall("V100-SXM2").size(), 2u);
}

// Its log would be 37 MB long. It is moved when it has 4 MiB, and begins anew when all of it was:
// one pause of the 15 is enough.
TEST_F(ModelCacheTest, TheFileStaysSmall) {
  auto cache = this->cache();
  SystemClock real;
  for (int i = 0; i < 3000; ++i) {
    EXPECT_GT(cache->keep(some_model(-i)), 0);
    if (i % 200 == 199) real.sleep_until(real.now() + 100ms);
  }
  // On a busy machine the thread that moves the log may be late; it must come.
  const auto log = [&] { return fs::file_size(folder_.file() + "-wal"); };
  for (int i = 0; i < 300 && log() >= 20u << 20; ++i) {
    EXPECT_GT(cache->keep(some_model(-i)), 0);
    real.sleep_until(real.now() + 100ms);
  }
  EXPECT_LT(log(), 20u << 20);
  cache.reset();
  EXPECT_LT(fs::file_size(folder_.file()), 200u << 10);
  EXPECT_FALSE(fs::exists(folder_.file() + "-wal"));
}

TEST_F(ModelCacheTest, Forgets) {
  auto cache = this->cache();
  EXPECT_EQ(cache->all().error().code, Errc::not_found);
  EXPECT_FALSE(fs::exists(folder_.file()));
  const auto first = cache->keep(some_model()), second = cache->keep(some_model());
  EXPECT_EQ(cache->forget({first, 99}).error().code, Errc::not_found);
  EXPECT_EQ(cache->all()->size(), 2u);
  EXPECT_TRUE(cache->forget({first}).ok());
  ASSERT_EQ(cache->all()->size(), 1u);
  EXPECT_EQ(cache->all()->front().id, second);
  EXPECT_EQ(*cache->forget_all(), 1);
  EXPECT_TRUE(cache->all()->empty());
  // The id of one that went is not another's.
  EXPECT_GT(cache->keep(some_model()), second);
}

}  // namespace
}  // namespace derate
