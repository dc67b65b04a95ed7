#include "service/records/answer_watch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace derate {
namespace {

using namespace std::chrono_literals;
using Kind = AnswerNews::Kind;

constexpr Duration kRound = 250ms;

// Rounds of a number of GPUs; of each round what came of it.
struct Rounds {
  explicit Rounds(std::size_t count) : gpus(count) {}
  std::vector<AnswerNews> take(const std::vector<GpuAnswer>& answers) {
    now += kRound;
    for (std::size_t i = 0; i < gpus; ++i) watch.note(name(i), answers[i], now);
    auto news = watch.settle(now);
    for (const AnswerNews& each : news) ++counts[each.kind];
    return news;
  }
  std::vector<AnswerNews> run(Duration time, const std::vector<GpuAnswer>& answers) {
    std::vector<AnswerNews> out;
    for (const Instant end = now + time; now < end;)
      for (AnswerNews& each : take(answers)) out.push_back(std::move(each));
    return out;
  }
  static std::string name(std::size_t i) { return std::string(1, static_cast<char>('a' + i)); }
  std::vector<GpuAnswer> all(GpuAnswer answer) const { return std::vector(gpus, answer); }

  std::size_t gpus;
  Instant now{};
  AnswerWatch watch;
  std::map<Kind, int> counts;
};

// How GPUs answer, round by round: each stretch is of some of them, or of all.
std::vector<std::vector<GpuAnswer>> some_answers(std::size_t gpus) {
  std::vector<std::vector<GpuAnswer>> out;
  const auto stretches = *rc::gen::inRange(1, 12);
  for (int i = 0; i < stretches; ++i) {
    std::vector<GpuAnswer> now(gpus, GpuAnswer::yes);
    const auto others = *rc::gen::element(GpuAnswer::yes, GpuAnswer::late, GpuAnswer::hung);
    for (GpuAnswer& each : now)
      each = *rc::gen::weightedElement<GpuAnswer>(
          {{6, others}, {1, GpuAnswer::yes}, {1, GpuAnswer::late}, {1, GpuAnswer::hung}});
    const auto rounds = *rc::gen::element(1, 2, 4, 6, 9, 24, 150);
    out.insert(out.end(), static_cast<std::size_t>(rounds), now);
  }
  return out;
}

// The model: the whole past is looked at again in each round.
struct Model {
  using Past = std::vector<std::vector<GpuAnswer>>;
  Past past = {};
  std::vector<bool> alone;                // reported alone as silent
  std::optional<std::size_t> since = {};  // the round in which many fell silent together
  std::vector<Duration> late = {};        // hosts that were late for long enough, so far

  bool is_silent(std::size_t gpu, std::size_t round) const {
    return past[round][gpu] != GpuAnswer::yes;
  }
  std::size_t silent_since(std::size_t gpu) const {
    std::size_t round = past.size();
    while (round > 0 && is_silent(gpu, round - 1)) --round;
    return round;
  }
  // Those that have fallen silent in that round or later, and are.
  std::size_t count_since(std::size_t round, std::size_t within) const {
    std::size_t out = 0;
    for (std::size_t gpu = 0; gpu < alone.size(); ++gpu) {
      const std::size_t from = silent_since(gpu);
      out += !alone[gpu] && from < past.size() && from >= round && from - round <= within;
    }
    return out;
  }
  void round(const std::vector<GpuAnswer>& answers) {
    past.push_back(answers);
    const auto many = [&](std::size_t count) {
      return alone.size() >= 2 && 2 * count > alone.size();
    };
    const auto second = static_cast<std::size_t>(AnswerWatch::kTogether / kRound);
    for (std::size_t from = 0; !since && from < past.size(); ++from)
      if (count_since(from, 0) > 0 && many(count_since(from, second))) since = from;
    if (!since || many(count_since(*since, past.size()))) return;
    const Duration time = (past.size() - 1 - *since) * kRound;
    const bool hung =
        time - kRound >= AnswerWatch::kDriverHungAfter;  // they were silent until then
    if (time >= AnswerWatch::kHostLateAfter && !hung) late.push_back(time);
    since.reset();
  }
};

RC_GTEST_PROP(AnswerWatch, HostLateIsThatOfThePlainModel, ()) {
  const auto gpus = *rc::gen::inRange<std::size_t>(1, 7);
  Rounds rounds(gpus);
  Model model{.alone = std::vector<bool>(gpus)};
  std::uint64_t times = 0;
  Duration longest{};
  std::optional<Instant> before;
  const auto take = [&](const std::vector<GpuAnswer>& answers) {
    model.round(answers);
    for (const AnswerNews& each : rounds.take(answers)) {
      const std::size_t gpu = static_cast<std::size_t>(each.gpus.front().front() - 'a');
      if (each.kind == Kind::stuck || each.kind == Kind::lost) model.alone[gpu] = true;
      if (each.kind == Kind::found) model.alone[gpu] = false;
      if (each.kind != Kind::host_late) continue;
      RC_ASSERT((!before || rounds.now - *before >= AnswerWatch::kHostLateEvery));
      before = rounds.now;
      times += each.times;
      longest = std::max(longest, each.time);
      RC_ASSERT(2 * each.gpus.size() > each.of);
    }
  };
  for (const auto& answers : some_answers(gpus)) take(answers);
  for (int i = 0; i < 300; ++i) take(rounds.all(GpuAnswer::yes));  // what waits is reported
  RC_ASSERT(times == model.late.size());
  const auto most = std::max_element(model.late.begin(), model.late.end());
  RC_ASSERT(longest == (most == model.late.end() ? Duration{} : *most));
}

// Nothing before its time, and each end only after its begin.
RC_GTEST_PROP(AnswerWatch, NoGpuIsReportedBeforeItsTime, ()) {
  const auto gpus = *rc::gen::inRange<std::size_t>(1, 7);
  Rounds rounds(gpus);
  std::vector<Instant> answered(gpus);
  std::vector<char> reported(gpus);
  for (const auto& answers : some_answers(gpus)) {
    const auto news = rounds.take(answers);
    for (const AnswerNews& each : news) {
      const std::size_t gpu = static_cast<std::size_t>(each.gpus.front().front() - 'a');
      const Duration silent = rounds.now - answered[gpu];
      if (each.kind == Kind::stuck) {
        RC_ASSERT(!std::exchange(reported[gpu], 1));
        RC_ASSERT(silent >= AnswerWatch::kStuckAfter && answers[gpu] == GpuAnswer::hung);
      } else if (each.kind == Kind::lost) {
        RC_ASSERT(!std::exchange(reported[gpu], 1));
        RC_ASSERT(silent >= AnswerWatch::kLostAfter);
      } else if (each.kind == Kind::found) {
        RC_ASSERT(std::exchange(reported[gpu], 0));
        RC_ASSERT(answers[gpu] == GpuAnswer::yes);
      }
    }
    for (std::size_t i = 0; i < gpus; ++i)
      if (answers[i] == GpuAnswer::yes) answered[i] = rounds.now;
  }
}

TEST(AnswerWatch, AShortDelayIsNoNews) {
  Rounds rounds(8);
  (void)rounds.run(5s, rounds.all(GpuAnswer::yes));
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(rounds.run(750ms, rounds.all(GpuAnswer::late)).empty());
    EXPECT_TRUE(rounds.run(500ms, rounds.all(GpuAnswer::yes)).empty());
  }
}

TEST(AnswerWatch, AHostThatIsLateIsOneNews) {
  Rounds rounds(8);
  (void)rounds.run(5s, rounds.all(GpuAnswer::yes));
  auto answers = rounds.all(GpuAnswer::hung);
  answers[7] = GpuAnswer::yes;
  EXPECT_TRUE(rounds.run(10s, answers).empty());
  const auto news = rounds.run(5s, rounds.all(GpuAnswer::yes));
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0], (AnswerNews{Kind::host_late, {"a", "b", "c", "d", "e", "f", "g"}, 10s, 8, 1}));
}

// The same again and again: one a minute, with their number and the longest.
TEST(AnswerWatch, AHostThatIsLateAgainIsCounted) {
  Rounds rounds(2);
  std::vector<AnswerNews> news;
  for (int i = 0; i < 60; ++i) {
    for (const auto& each : rounds.run(i == 30 ? 3s : 2s, rounds.all(GpuAnswer::late)))
      news.push_back(each);
    for (const auto& each : rounds.run(1s, rounds.all(GpuAnswer::yes))) news.push_back(each);
  }
  ASSERT_EQ(news.size(), 3u);
  EXPECT_EQ(news[0].times, 1u);
  EXPECT_EQ(news[1].times, 20u);
  EXPECT_EQ(news[2].time, 3s);
}

TEST(AnswerWatch, OneOfTwoIsStuckAlone) {
  Rounds rounds(2);
  (void)rounds.run(5s, rounds.all(GpuAnswer::yes));
  EXPECT_TRUE(rounds.run(2s, {GpuAnswer::hung, GpuAnswer::yes}).empty());
  (void)rounds.run(1min, {GpuAnswer::hung, GpuAnswer::yes});
  (void)rounds.run(1min, {GpuAnswer::late, GpuAnswer::yes});  // it was opened again
  (void)rounds.run(1min, {GpuAnswer::gone, GpuAnswer::yes});
  (void)rounds.run(1min, rounds.all(GpuAnswer::yes));
  EXPECT_EQ(rounds.counts,
            (std::map<Kind, int>{{Kind::stuck, 1}, {Kind::lost, 1}, {Kind::found, 1}}));
}

// A GPU that hung while the host was late is stuck when the host no longer is.
TEST(AnswerWatch, TheHostIsNoExcuseForever) {
  Rounds rounds(4);
  (void)rounds.run(5s, rounds.all(GpuAnswer::yes));
  (void)rounds.run(4s, rounds.all(GpuAnswer::hung));
  auto answers = rounds.all(GpuAnswer::yes);
  answers[2] = GpuAnswer::hung;
  const auto news = rounds.run(10s, answers);
  ASSERT_EQ(news.size(), 2u);
  EXPECT_EQ(news[0].kind, Kind::host_late);
  EXPECT_EQ(news[1].kind, Kind::stuck);
  EXPECT_EQ(news[1].gpus, std::vector<std::string>{"c"});
}

// Rounds that begin late say nothing of a GPU, for a minute.
TEST(AnswerWatch, AProgramWithoutAProcessorBlamesNoGpu) {
  Rounds rounds(4);
  (void)rounds.run(5s, rounds.all(GpuAnswer::yes));
  auto answers = rounds.all(GpuAnswer::yes);
  answers[0] = GpuAnswer::hung;
  int seconds = 0;
  for (; seconds < 100 && rounds.counts.empty(); ++seconds) {
    rounds.watch.excuse(rounds.now);
    (void)rounds.run(1s, answers);
  }
  EXPECT_NEAR(seconds, 60, 1);
  EXPECT_EQ(rounds.counts, (std::map<Kind, int>{{Kind::stuck, 1}}));
}

// A driver that hangs as a whole is reported, once.
TEST(AnswerWatch, ADriverThatHangsIsOneNews) {
  Rounds rounds(8);
  (void)rounds.run(5s, rounds.all(GpuAnswer::yes));
  (void)rounds.run(5min, rounds.all(GpuAnswer::hung));
  (void)rounds.run(5min, rounds.all(GpuAnswer::yes));
  EXPECT_EQ(rounds.counts, (std::map<Kind, int>{{Kind::driver_hung, 1}, {Kind::driver_back, 1}}));
}

TEST(AnswerWatch, EveryGpuThatTheDriverCallsLostIsNews) {
  Rounds rounds(4);
  (void)rounds.run(5s, rounds.all(GpuAnswer::yes));
  (void)rounds.run(1min, rounds.all(GpuAnswer::gone));
  EXPECT_EQ(rounds.counts, (std::map<Kind, int>{{Kind::lost, 4}}));
}

}  // namespace
}  // namespace derate
