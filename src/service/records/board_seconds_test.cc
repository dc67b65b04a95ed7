#include "service/records/board_seconds.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "device/sim/sim_device.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A board whose readings are made up: what it draws is what was read last.
class Board {
 public:
  Board() {
    auto device = std::make_unique<SimDevice>(sim_, clock_, 0);
    gpu_.open.source = std::move(device);
  }
  // The next reading, so much later.
  void read(Duration later, double watts, bool counter, Duration wall_step = {}) {
    joules_ += watts_ * seconds(later);
    watts_ = watts;
    now_ += later;
    wall_ += later + wall_step;
    Record record;
    record.time = now_;
    record.estimate.freshness = Freshness::fresh;
    record.sample.emplace();
    record.sample->time = now_;
    record.sample->power_usage = Watts(watts * overread);
    record.sample->sm_clock = Megahertz(1000);
    if (counter) record.sample->energy = Joules(joules_);
    // As the account says, cut where the seconds are.
    if (last_ && now_ - *last_ > BoardSeconds::kLongestGap) end_account();
    (void)odometer_.add(*record.sample);
    last_ = now_;
    seconds_.take({gpu_, record, before_}, wall_.time_since_epoch() - now_.time_since_epoch(), out);
  }
  void fail_with(const Saving& saving) {
    Record record;
    record.time = now_;
    record.sample_error = "no reading";
    record.saving = saving;
    seconds_.take({gpu_, record, before_}, wall_.time_since_epoch() - now_.time_since_epoch(), out);
  }
  void cut() {
    end_account();
    seconds_.cut(out);
  }
  std::int64_t told(HistoryField field) const {
    std::int64_t sum = 0;
    for (const auto& part : out) sum += part.point[field].value_or(0);
    return sum;
  }
  std::int64_t by_the_odometer() const { return all_mj_; }

  double overread = 1;
  std::vector<SecondPart> out;
  BoardSeconds seconds_;

 private:
  void end_account() {
    all_mj_ += std::llround(odometer_.totals(odometer_.mark(*last_)).energy.value() * 1000);
    odometer_ = EnergyOdometer();
    last_.reset();
  }

  FakeClock clock_;
  SimGpu sim_{**find_sim_chip("v100"), SimOptions{}};
  ManagedGpu gpu_;
  std::optional<Record> before_;
  Instant now_{};
  WallTime wall_{std::chrono::hours(24 * 365 * 56)};
  double watts_ = 0, joules_ = 5000;
  std::optional<Instant> last_;
  EnergyOdometer odometer_;
  std::int64_t all_mj_ = 0;
};

// Whatever comes when: the seconds add up to what the odometer says, and cover no more than there
// was.
RC_GTEST_PROP(BoardSeconds, AddUpToTheOdometer, ()) {
  Board board;
  Duration elapsed{};
  bool first = true;
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 1000), rc::gen::inRange(0, 1000)));
  for (const auto& [how_long, how] : steps) {
    const Duration later = how_long < 900   ? Duration(std::chrono::milliseconds(1 + how_long / 2))
                           : how_long < 980 ? Duration(std::chrono::milliseconds(how_long * 7))
                                            : Duration(std::chrono::seconds(how_long / 10 - 50));
    const Duration jump = how > 990 ? 3700s : how > 980 ? Duration(-5s) : Duration{};
    board.read(later, 50 + how % 300, how % 7 == 0, jump);
    if (!std::exchange(first, false)) elapsed += later;
  }
  if (steps.empty()) return;
  board.cut();
  // What stood for a counter by power may have been rounded the other way.
  RC_ASSERT(std::abs(board.told(HistoryField::energy_mj) - board.by_the_odometer()) <= 1);
  RC_ASSERT(board.told(HistoryField::covered_ms) <=
            std::chrono::ceil<std::chrono::milliseconds>(elapsed).count());
  for (const auto& part : board.out) {
    RC_ASSERT(part.point[HistoryField::covered_ms].value_or(0) <= 1000);
    RC_ASSERT(part.point[HistoryField::energy_mj].value_or(0) >= 0);
    RC_ASSERT(part.point[HistoryField::sm_clock_ms].value_or(0) <= 1001);
  }
}

TEST(BoardSeconds, ASecondIsOnePointOnceTheCounterHasBeenRead) {
  Board board;
  for (int i = 0; i <= 55; ++i) board.read(100ms, 200, i % 10 == 5);
  // The first reading is at 0.1 s, the counter's at n.6 s.
  ASSERT_EQ(board.out.size(), 5u);
  EXPECT_EQ(board.out[0].point[HistoryField::covered_ms], 900);
  for (std::size_t i = 1; i < 5; ++i) {
    const HistoryPoint& point = board.out[i].point;
    EXPECT_EQ(board.out[i].begin - board.out[i - 1].begin, 1s);
    EXPECT_EQ(point[HistoryField::energy_mj], 200'000);
    EXPECT_EQ(point[HistoryField::covered_ms], 1000);
    EXPECT_EQ(point[HistoryField::sm_clock_ms], 1000);
    EXPECT_EQ(point[HistoryField::sm_clock_mhz_ms], 1'000'000);
    EXPECT_EQ(point[HistoryField::power_most_mw], 200'000);
    EXPECT_FALSE(point[HistoryField::asked_clock_ms]);
  }
}

// What power said too much of is taken off the seconds after: the sum is the counter's.
TEST(BoardSeconds, PowerStandsInForACounterThatDoesNotCome) {
  Board board;
  board.overread = 1.1;
  board.read(100ms, 200, true);
  for (int i = 0; i < 100; ++i) board.read(100ms, 200, false);
  EXPECT_GT(board.told(HistoryField::energy_mj), 7 * 210'000);
  for (int i = 0; i < 50; ++i) board.read(100ms, 200, true);
  board.cut();
  EXPECT_EQ(board.told(HistoryField::energy_mj), 15'000 * 200);
  EXPECT_EQ(board.told(HistoryField::covered_ms), 15'000);
}

TEST(BoardSeconds, ALongSilenceIsAGap) {
  Board board;
  for (int i = 0; i < 30; ++i) board.read(100ms, 200, true);
  board.read(10min, 200, true);
  for (int i = 0; i < 30; ++i) board.read(100ms, 200, true);
  board.cut();
  EXPECT_EQ(board.told(HistoryField::covered_ms), 2900 + 3000);
  EXPECT_EQ(board.told(HistoryField::energy_mj), (2900 + 3000) * 200);
}

// What was saved is kept, whichever record tells it: one whose reading failed, too.
TEST(BoardSeconds, SavingsAreKeptOfRecordsWithoutAReading) {
  Board board;
  for (int i = 0; i < 30; ++i) {
    board.read(100ms, 200, true);
    if (i % 10 == 4) board.fail_with({.energy = Joules(1.0006), .energy_at_highest = Joules(2)});
  }
  board.cut();
  EXPECT_EQ(board.told(HistoryField::saved_of_mj), 3002);
  EXPECT_EQ(board.told(HistoryField::saved_at_highest_mj), 6000);
}

// A short one the counter covers, and nothing else does.
TEST(BoardSeconds, AShortSilenceIsCoveredByTheCounter) {
  Board board;
  for (int i = 0; i < 30; ++i) board.read(100ms, 200, true);
  board.read(20s, 200, true);
  for (int i = 0; i < 30; ++i) board.read(100ms, 200, true);
  board.cut();
  EXPECT_EQ(board.told(HistoryField::covered_ms), 2900 + 20'000 + 3000);
  EXPECT_EQ(board.told(HistoryField::energy_mj), (2900 + 20'000 + 3000) * 200);
  EXPECT_EQ(board.told(HistoryField::sm_clock_ms), 2900 + 2000 + 3000);
}

}  // namespace
}  // namespace derate
