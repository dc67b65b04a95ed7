#include "model/launch_phases.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <set>

namespace derate {
namespace {

using Step = std::vector<std::uint64_t>;  // the kernels of one step, in order

// A program that launches a step's kernels in turn, so many a second.
struct LaunchStream {
  LaunchCounts counts;
  double owed = 0;
  std::size_t next = 0;

  void run(const Step& step, double launches) {
    for (owed += launches; owed >= 1; owed -= 1) ++counts[step[next++ % step.size()]];
  }
};

Step step_of(std::uint64_t first, int kinds, int launches, unsigned seed) {
  std::mt19937 random(seed);
  Step out;
  for (int i = 0; i < launches; ++i)
    out.push_back(first + std::uniform_int_distribution<std::uint64_t>(0, kinds - 1)(random));
  return out;
}

constexpr Duration kTick = std::chrono::milliseconds(100);

// The states of so many seconds of it, told ten times a second.
std::vector<LaunchState> watch(LaunchPhases& phases, LaunchStream& stream, const Step& step,
                               double a_second, double seconds, Instant& now) {
  std::vector<LaunchState> out;
  for (int i = 0; i < static_cast<int>(seconds * 10); ++i) {
    now += kTick;
    stream.run(step, a_second / 10);
    if (const auto state = phases.add(now, stream.counts)) out.push_back(*state);
  }
  return out;
}

TEST(MixDistance, IsTheShareThatWouldHaveToBeOthers) {
  const KernelMix a = {{1, 0.5}, {2, 0.5}}, b = {{2, 0.5}, {3, 0.5}};
  EXPECT_DOUBLE_EQ(mix_distance(a, a), 0);
  EXPECT_DOUBLE_EQ(mix_distance(a, b), 0.5);
  EXPECT_DOUBLE_EQ(mix_distance(a, {{7, 1.0}}), 1);
  EXPECT_DOUBLE_EQ(mix_distance(b, a), mix_distance(a, b));
}

// A program may launch kernels of other names in each window, 86 % of them the same ones, so that
// its windows are one phase: what is kept of it grows for nobody.
TEST(LaunchPhases, AMixForgetsWhatIsRare) {
  KernelMix mix = {{1, 1.0}};
  std::uint64_t fresh = 2;
  for (int window = 0; window < 200; ++window) {
    KernelMix seen = {{1, 0.86}};
    for (int i = 0; i < 511; ++i) seen[fresh++] = 0.14 / 511;
    mix = learned(mix, seen, window == 0 ? 1 : 0.05);
    ASSERT_LE(mix.size(), kMostKernels);
    double sum = 0;
    for (const auto& [id, share] : mix) sum += share;
    ASSERT_NEAR(sum, 1, 1e-9);
  }
  EXPECT_GT(mix.at(1), 0.98);
}

TEST(LaunchPhases, AMixKeepsTheMostFrequentAndChangesNothingElse) {
  KernelMix many;
  for (std::uint64_t id = 0; id < 1000; ++id) many[id] = 1.0 / 1000;
  many[5000] = 0.5;
  const KernelMix kept = learned({}, many, 1);
  EXPECT_EQ(kept.size(), kMostKernels);
  EXPECT_TRUE(kept.contains(5000));
  EXPECT_EQ(learned({{1, 0.5}, {2, 0.5}}, {{1, 1.0}}, 0.5), (KernelMix{{1, 0.75}, {2, 0.25}}));
  EXPECT_EQ(learned({{1, 1.0}}, {{1, 0.99995}, {2, 0.00005}}, 1), (KernelMix{{1, 1.0}}));
}

// Whatever a step is, and however fast the steps come: one phase, whose launches count the work.
RC_GTEST_PROP(LaunchPhases, OneKindOfStepsIsOnePhase, ()) {
  const int kinds = *rc::gen::inRange(1, 40), launches = *rc::gen::inRange(kinds, 600);
  const Step step = step_of(100, kinds, launches, *rc::gen::arbitrary<unsigned>());
  const double a_second = *rc::gen::inRange(60, 6000);
  LaunchPhases phases;
  LaunchStream stream;
  Instant now{};
  const auto states = watch(phases, stream, step, std::max(a_second, 10.0 * launches), 20, now);
  RC_ASSERT(states.size() > 10u);
  double before = 0;
  for (const LaunchState& state : states) {
    RC_ASSERT(state.phase == 1);
    RC_ASSERT(state.done > before);
    before = state.done;
  }
  RC_ASSERT(states.back().unsteadiness < LaunchPhases::kSteady);
  double all = 0;
  for (const auto& [id, count] : stream.counts) all += static_cast<double>(count);
  RC_ASSERT(states.back().done <= all);
  RC_ASSERT(states.back().done > all * 0.9);
}

// Two kinds of steps in turn are two phases, known again each time; what a phase has done goes on
// where it was.
RC_GTEST_PROP(LaunchPhases, AnotherKindIsAnotherPhaseAndKnownAgain, ()) {
  const unsigned seed = *rc::gen::arbitrary<unsigned>();
  const Step train = step_of(0, 30, 200, seed), evaluate = step_of(100, 10, 80, seed + 1);
  const double seconds = *rc::gen::inRange(3, 12);
  LaunchPhases phases;
  LaunchStream stream;
  Instant now{};
  std::map<int, double> done;
  for (int turn = 0; turn < 6; ++turn) {
    const bool trains = turn % 2 == 0;
    const auto states = watch(phases, stream, trains ? train : evaluate, 5000, seconds, now);
    RC_ASSERT(!states.empty());
    const int expected = trains ? 1 : 2;
    RC_ASSERT(states.back().phase == expected);
    RC_ASSERT(states.back().done > done[expected]);
    done[expected] = states.back().done;
    if (turn >= 2)  // it is not met anew
      for (std::size_t i = 1; i < states.size(); ++i) RC_ASSERT(states[i].phase == expected);
  }
}

TEST(LaunchPhases, AStepThatTakesLongerThanAWindowIsLearnedWithLongerOnes) {
  // 3 s a step: first one kind of kernels, then another.
  Step step(3000, 1);
  std::fill(step.begin() + 1500, step.end(), 2);
  LaunchPhases phases;
  LaunchStream stream;
  Instant now{};
  const auto states = watch(phases, stream, step, 1000, 300, now);
  ASSERT_FALSE(states.empty());
  std::set<int> met;
  for (const LaunchState& state : states) met.insert(state.phase);
  EXPECT_LE(met.size(), 3u);  // its two parts, or the whole: nothing that comes anew each time
}

// Where hardly a window is of one phase alone, what is counted says little.
TEST(LaunchPhases, PhasesThatHardlyFillAWindowCountNoWork) {
  const Step one = step_of(100, 10, 200, 1), other = step_of(900, 10, 200, 2);
  LaunchPhases phases;
  LaunchStream stream;
  Instant now{};
  LaunchState last;
  const auto take_turns = [&](double seconds, int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (const Step& step : {one, other})
        for (const LaunchState& state : watch(phases, stream, step, 2000, seconds, now))
          last = state;
  };
  take_turns(4, 5);
  EXPECT_TRUE(LaunchPhases::counts_work(last));
  take_turns(1.5, 10);
  EXPECT_TRUE(LaunchPhases::counts_work(last));
  std::mt19937 random(1);
  bool restless = false;
  for (int i = 0; i < 100; ++i) {
    const double seconds = std::uniform_int_distribution(1, 3)(random) / 10.0;
    for (const LaunchState& state :
         watch(phases, stream, i % 2 == 0 ? one : other, 2000, seconds, now))
      restless |= !LaunchPhases::counts_work(state);
  }
  EXPECT_TRUE(restless);
  take_turns(8, 1);
  EXPECT_TRUE(LaunchPhases::counts_work(last));
}

// Between states of one run no launch is missing and none is of other work; but for the last of a
// run, into whose window a little of the next phase may fall. Holds for phases of a second or more:
// of phases of half a second, every other window has launches of two, and the unsteadiness that is
// learned from those windows takes them for windows of one (1 in 280 draws).
RC_GTEST_PROP(LaunchPhases, WithinARunNothingIsMissing, ()) {
  const Step one = step_of(0, 20, 300, *rc::gen::arbitrary<unsigned>());
  const Step other = step_of(500, 10, 100, *rc::gen::arbitrary<unsigned>());
  const double fast = *rc::gen::inRange(2000, 20'000), slow = *rc::gen::inRange(300, 20'000);
  LaunchPhases phases;
  LaunchStream stream;
  Instant now{};
  struct Seen {
    LaunchState state;
    Instant at{};
  };
  std::vector<Seen> run;
  for (int turn = 0; turn < 60; ++turn) {
    const bool first = turn % 2 == 0;
    const int ticks = *rc::gen::inRange(10, 35);
    for (int i = 0; i < ticks; ++i) {
      now += kTick;
      stream.run(first ? one : other, (first ? fast : slow) / 10);
      const auto state = phases.add(now, stream.counts);
      if (!state) continue;
      if (!run.empty() && run.back().state.run != state->run) run.clear();
      if (run.size() >= 2) {
        const auto& [from, since] = run[run.size() - 2];
        const auto& [to, until] = run.back();
        const double expected = (to.phase == 1 ? fast : slow) * seconds(until - since);
        RC_ASSERT(std::abs(to.done - from.done - expected) <= 0.05 * expected + 2);
      }
      run.push_back({*state, now});
    }
  }
}

TEST(LaunchPhases, NothingLaunchedIsAPhaseOfItsOwn) {
  const Step step = step_of(0, 5, 100, 1);
  LaunchPhases phases;
  LaunchStream stream;
  Instant now{};
  const auto before = watch(phases, stream, step, 10'000, 10, now);
  const auto pause = watch(phases, stream, step, 0, 10, now);
  const auto after = watch(phases, stream, step, 10'000, 10, now);
  ASSERT_FALSE(pause.empty());
  EXPECT_EQ(pause.back().phase, 0);
  EXPECT_EQ(after.back().phase, before.back().phase);
}

TEST(LaunchPhases, KernelsThatNeverRecurAreNotKnown) {
  LaunchPhases phases;
  LaunchCounts counts;
  Instant now{};
  for (std::uint64_t i = 0; i < 400; ++i) {
    counts[i] = 1000;
    now += kTick;
    EXPECT_FALSE(phases.add(now, counts)) << i;
  }
  EXPECT_FALSE(phases.is_known());
}

TEST(LaunchPhases, ACountThatFallsIsAnotherProgramsAndBeginsAnew) {
  const Step step = step_of(0, 5, 100, 1);
  LaunchPhases phases;
  LaunchStream stream, second;
  Instant now{};
  const double done = watch(phases, stream, step, 10'000, 10, now).back().done;
  const auto states = watch(phases, second, step, 10'000, 10, now);
  ASSERT_FALSE(states.empty());
  EXPECT_EQ(states.back().phase, 1);
  EXPECT_LE(states.back().done, done + 100'000);
}

TEST(LaunchPhases, RemembersSoManyAndNoMore) {
  LaunchPhases phases;
  LaunchStream stream;
  Instant now{};
  for (int kind = 0; kind < 40; ++kind) {
    const auto states = watch(phases, stream, step_of(1000 * kind, 5, 100, 1), 2000, 5, now);
    EXPECT_EQ(states.back().phase, kind + 1);
  }
  // The last of them is known again, the first is met anew.
  EXPECT_EQ(watch(phases, stream, step_of(38'000, 5, 100, 1), 2000, 5, now).back().phase, 39);
  EXPECT_EQ(watch(phases, stream, step_of(0, 5, 100, 1), 2000, 5, now).back().phase, 41);
}

}  // namespace
}  // namespace derate
