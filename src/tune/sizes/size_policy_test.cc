#include "tune/sizes/size_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "tune/sizes/size_beliefs.h"
#include "tune/sizes/tune_sizes.h"
#include "tune/sizes/zeus_sizes.h"

namespace derate {
namespace {

SizeProblem problem(std::vector<int> sizes, int by_default) {
  SizeProblem out;
  out.batch_sizes = std::move(sizes);
  out.default_size = by_default;
  out.max_epochs = 100;
  return out;
}

// A job whose epochs and epoch costs are known, to be run by a policy.
struct ToyRun {
  SizeProblem problem;
  std::map<int, double> epochs, epoch_cost;  // by batch size; epochs above max_epochs: misses
  std::set<int> too_large;                   // out of memory
  double noise = 0;                          // sd of log epochs

  static ToyRun any() {
    const int count = *rc::gen::inRange(1, 12);
    std::vector<int> sizes;
    for (int i = 0; i < count; ++i) sizes.push_back(8 << i);
    ToyRun out{derate::problem(sizes, *rc::gen::elementOf(sizes))};
    out.problem.seed = *rc::gen::inRange<std::uint64_t>(1, 1000);
    for (const int size : sizes) {
      // Not near max_epochs: a batch size that misses as often as not may do so 20 times in a row.
      out.epochs[size] = *rc::gen::oneOf(rc::gen::inRange(2, 60), rc::gen::just(200));
      out.epoch_cost[size] = *rc::gen::inRange(10, 1000);
    }
    out.epochs[out.problem.default_size] = *rc::gen::inRange(2, 60);
    for (const int size : sizes)
      if (size > out.problem.default_size && *rc::gen::inRange(0, 8) == 0)
        out.too_large.insert(size);
    out.noise = *rc::gen::inRange(0, 3) * 0.1;
    return out;
  }
};

// Runs one try to its end, as a daemon would.
void run_try(const SizePolicyInfo& policy, const ToyRun& job, std::vector<Trial>& trials,
             int recurrence, std::mt19937_64& random) {
  const SizeChoice choice = policy.choose(job.problem, trials);
  RC_ASSERT(job.epochs.contains(choice.batch_size));
  Trial& trial = trials.emplace_back();
  trial.id = static_cast<std::int64_t>(trials.size());
  trial.recurrence = recurrence;
  trial.batch_size = choice.batch_size;
  trial.exploring = choice.exploring;
  if (job.too_large.contains(choice.batch_size)) {
    trial.state = TrialState::infeasible;
    return;
  }
  const double factor = std::exp(job.noise * std::normal_distribution<>()(random));
  const double needed = std::ceil(job.epochs.at(choice.batch_size) * factor);
  trial.epoch_cost = trial.default_epoch_cost = job.epoch_cost.at(choice.batch_size);
  while (trial.epochs < std::min<double>(needed, job.problem.max_epochs)) {
    if (policy.watch(job.problem, trials, trials.size() - 1, choice).stop) {
      trial.state = TrialState::stopped;
      return;
    }
    if (choice.stop_cost)
      RC_ASSERT(trial.cost + *trial.epoch_cost <= *choice.stop_cost * (1 + 1e-9));
    trial.cost += *trial.epoch_cost;
    trial.epochs += 1;
  }
  trial.state = needed <= job.problem.max_epochs ? TrialState::reached : TrialState::missed;
}

const SizePolicyInfo& any_policy() {
  return size_policies()[*rc::gen::inRange<std::size_t>(0, size_policies().size())];
}

RC_GTEST_PROP(SizePolicies, EveryRecurrenceEndsAndWhatIsTooLargeIsNotOfferedAgain, ()) {
  const SizePolicyInfo& policy = any_policy();
  ToyRun job = ToyRun::any();
  job.noise = std::min(job.noise, 0.1);  // so that the default reaches its target
  std::mt19937_64 random(job.problem.seed);
  std::vector<Trial> trials;
  for (int recurrence = 0; recurrence < 40; ++recurrence) {
    int tries = 0;
    do {
      RC_ASSERT(++tries <= 20);
      run_try(policy, job, trials, recurrence, random);
    } while (trials.back().state != TrialState::reached);
  }
  std::map<int, int> refusals;
  for (const Trial& trial : trials)
    if (trial.state == TrialState::infeasible) ++refusals[trial.batch_size];
  for (const auto& [size, count] : refusals) RC_ASSERT(count == 1);
}

RC_GTEST_PROP(SizePolicies, TheSameHistoryGivesTheSameChoice, ()) {
  const SizePolicyInfo& policy = any_policy();
  const ToyRun job = ToyRun::any();
  std::mt19937_64 random(1);
  std::vector<Trial> trials;
  for (int i = 0; i < 15; ++i) run_try(policy, job, trials, i, random);
  const auto a = policy.choose(job.problem, trials), b = policy.choose(job.problem, trials);
  RC_ASSERT(a.batch_size == b.batch_size);
  RC_ASSERT(a.stop_cost == b.stop_cost);
}

// Joules or kilojoules: costs have no scale of their own.
RC_GTEST_PROP(SizePolicies, TheUnitOfCostDoesNotMatter, ()) {
  const SizePolicyInfo& policy = any_policy();
  ToyRun small = ToyRun::any(), large = small;
  const double factor = 1024;  // exact in binary
  for (auto& [size, cost] : large.epoch_cost) cost *= factor;
  std::mt19937_64 random_small(1), random_large(1);
  std::vector<Trial> trials_small, trials_large;
  for (int i = 0; i < 15; ++i) {
    run_try(policy, small, trials_small, i, random_small);
    run_try(policy, large, trials_large, i, random_large);
    RC_ASSERT(trials_small.back().batch_size == trials_large.back().batch_size);
    RC_ASSERT(trials_small.back().state == trials_large.back().state);
  }
}

// A client that dies leaves a trial that says nothing; one that runs is not chosen twice to learn
// from.
RC_GTEST_PROP(SizePolicies, DeadAndRunningTrialsStallNothing, ()) {
  const SizePolicyInfo& policy = any_policy();
  ToyRun job = ToyRun::any();
  job.noise = 0;
  job.too_large.clear();
  std::mt19937_64 random(1);
  std::vector<Trial> trials;
  int recurrence = 0;
  for (int i = 0; i < 60; ++i, ++recurrence) {
    const int kind = *rc::gen::inRange(0, 3);
    if (kind == 0) {
      run_try(policy, job, trials, recurrence, random);
      continue;
    }
    const SizeChoice choice = policy.choose(job.problem, trials);
    for (const Trial& other : trials)
      RC_ASSERT((!choice.exploring || other.state != TrialState::running || !other.exploring ||
                 other.batch_size != choice.batch_size));
    Trial& trial = trials.emplace_back();
    trial.id = i + 1;
    trial.recurrence = recurrence;
    trial.batch_size = choice.batch_size;
    trial.exploring = choice.exploring;
    trial.state = kind == 1 ? TrialState::lost : TrialState::running;
  }
  for (Trial& trial : trials)
    if (trial.state == TrialState::running) trial.state = TrialState::lost;
  for (int i = 0; i < 60; ++i, ++recurrence) run_try(policy, job, trials, recurrence, random);
  const auto reached = std::count_if(trials.begin(), trials.end(), [](const Trial& trial) {
    return trial.state == TrialState::reached;
  });
  RC_ASSERT(reached >= 20);
}

// Whatever clients have told, or could not: a batch size of the list comes out, and a bound that is
// one.
RC_GTEST_PROP(SizePolicies, OddTrialsGiveSoundChoices, ()) {
  const SizePolicyInfo& policy = any_policy();
  const SizeProblem some = problem({8, 16, 32, 64}, 32);
  const auto number = [](std::initializer_list<double> values) {
    return *rc::gen::elementOf(std::vector<double>(values));
  };
  std::vector<Trial> trials;
  const int count = *rc::gen::inRange(0, 30);
  for (int i = 0; i < count; ++i) {
    Trial& trial = trials.emplace_back();
    trial.id = i + 1;
    trial.recurrence = *rc::gen::inRange(0, i + 1);
    trial.batch_size = *rc::gen::element(8, 16, 32, 64, 128);  // one was taken from the list
    trial.exploring = *rc::gen::arbitrary<bool>();
    trial.state = static_cast<TrialState>(*rc::gen::inRange(0, 6));
    trial.epochs = number({0, 0.1, 1, 7, 1e6});
    trial.cost = number({0, 1, 1e3, 1e12});
    if (*rc::gen::arbitrary<bool>()) trial.epoch_cost = number({0, 1e-9, 10, 1e12});
    if (*rc::gen::arbitrary<bool>()) trial.default_epoch_cost = number({0, 10, 1e12});
    const SizeChoice choice = policy.choose(some, trials);
    RC_ASSERT(std::find(some.batch_sizes.begin(), some.batch_sizes.end(), choice.batch_size) !=
              some.batch_sizes.end());
    RC_ASSERT((!choice.stop_cost || (std::isfinite(*choice.stop_cost) && *choice.stop_cost > 0)));
    (void)policy.watch(some, trials, trials.size() - 1, choice);
  }
}

// Costs fall by steps of one octave to a valley and rise from there: what it runs with in the end.
TEST(TuneSizes, EndsAtTheBottomOfAValley) {
  for (const int bottom : {16, 128, 1024}) {
    ToyRun job{problem({8, 16, 32, 64, 128, 256, 512, 1024, 2048}, 256)};
    for (const int size : job.problem.batch_sizes) {
      const double octaves = std::abs(std::log2(static_cast<double>(size) / bottom));
      job.epochs[size] = 20;
      job.epoch_cost[size] = 100 * (1 + 0.4 * octaves);
    }
    std::mt19937_64 random(1);
    std::vector<Trial> trials;
    for (int i = 0; i < 40; ++i) run_try(size_policies()[0], job, trials, i, random);
    EXPECT_EQ(trials.back().batch_size, bottom);
  }
}

// A default that misses is not trained twenty times over.
TEST(TuneSizes, TriesNeighboursWhereTheDefaultMisses) {
  ToyRun job{problem({8, 16, 32, 64}, 32)};
  job.epochs = {{8, 200}, {16, 50}, {32, 200}, {64, 200}};
  for (const int size : job.problem.batch_sizes) job.epoch_cost[size] = 100;
  std::mt19937_64 random(1);
  std::vector<Trial> trials;
  for (int i = 0; i < 3; ++i) run_try(size_policies()[0], job, trials, 0, random);
  EXPECT_EQ(trials[0].batch_size, 32);
  EXPECT_TRUE(trials[1].state == TrialState::reached || trials[2].state == TrialState::reached);
}

TEST(TuneSizes, RunsTheDefaultFirst) {
  const auto job = problem({8, 16, 32}, 16);
  for (const SizePolicyInfo& policy : size_policies())
    EXPECT_EQ(policy.choose(job, {}).batch_size, 16) << policy.name;
}

// Every size but the default is far more expensive: without a budget some are tried, with one the
// sum stays in it after the free runs.
RC_GTEST_PROP(TuneSizes, KeepsItsBudget, ()) {
  ToyRun job = ToyRun::any();
  job.noise = 0;
  job.problem.budget = 0.25;
  const double by_default =
      job.epochs[job.problem.default_size] * job.epoch_cost[job.problem.default_size];
  std::mt19937_64 random(1);
  std::vector<Trial> trials;
  double paid = 0;
  for (int recurrence = 0; recurrence < 30; ++recurrence) {
    do {
      run_try(*(*find_size_policy("tune")), job, trials, recurrence, random);
      paid += trials.back().cost;
    } while (trials.back().state != TrialState::reached);
    RC_ASSERT((recurrence + 1 < SizeProblem::kFreeRuns ||
               paid <= 1.25 * by_default * (recurrence + 1) * (1 + 1e-9)));
  }
}

TEST(TuneSizes, DoesNotGoOnWithWhatShowsToBeDear) {
  ToyRun job{problem({32, 64, 128}, 64)};
  job.epochs = {{32, 10}, {64, 10}, {128, 10}};
  job.epoch_cost = {{32, 500}, {64, 100}, {128, 90}};
  std::mt19937_64 random(1);
  std::vector<Trial> trials;
  for (int i = 0; i < 10; ++i) run_try(size_policies()[0], job, trials, i, random);
  for (const Trial& trial : trials) EXPECT_TRUE(trial.batch_size != 32 || trial.epochs < 2);
}

// What is given up twice is not begun a third time, however often the job recurs; the second time
// comes after many runs.
TEST(TuneSizes, GivesUpTwiceAtMost) {
  ToyRun job{problem({32, 64, 128}, 64)};
  job.epochs = {{32, 30}, {64, 10}, {128, 30}};
  job.epoch_cost = {{32, 90}, {64, 100}, {128, 90}};
  std::mt19937_64 random(1);
  std::vector<Trial> trials;
  for (int i = 0; i < 600; ++i) {
    do run_try(size_policies()[0], job, trials, i, random);
    while (trials.back().state != TrialState::reached);
  }
  std::map<int, int> stops;
  for (const Trial& trial : trials) stops[trial.batch_size] += trial.state == TrialState::stopped;
  EXPECT_GE(stops[32], 1);
  EXPECT_LE(stops[32], 2);
  EXPECT_LE(stops[128], 2);
}

// The best moves to a batch size that was given up before.
TEST(TuneSizes, FollowsAJobThatChanges) {
  ToyRun job{problem({16, 32, 64, 128, 256}, 64)};
  const auto move_to = [&](int best) {
    for (const int size : job.problem.batch_sizes) {
      job.epochs[size] = 20 + 12 * std::abs(std::log2(static_cast<double>(size) / best));
      job.epoch_cost[size] = 100;
    }
  };
  std::mt19937_64 random(1);
  std::vector<Trial> trials;
  const auto run = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      do run_try(size_policies()[0], job, trials, i, random);
      while (trials.back().state != TrialState::reached);
    }
  };
  move_to(32);
  run(0, 40);
  EXPECT_EQ(trials.back().batch_size, 32);
  move_to(256);
  run(40, 80);
  EXPECT_EQ(trials.back().batch_size, 256);
}

// Profiles that were 30 % off are believed to that; those that were right, to less than 1 %.
TEST(TuneSizes, BelievesProfilesAsFarAsTheyHeld) {
  for (const double off : {1.0, 1.3}) {
    std::vector<Trial> trials;
    for (int i = 0; i < 3; ++i)
      trials.push_back({.id = i,
                        .recurrence = i,
                        .batch_size = 16 << i,
                        .state = TrialState::reached,
                        .epochs = 10,
                        .cost = 1000,
                        .epoch_cost = i == 1 ? 100 / off : 100 * off});
    const SizeBeliefs beliefs = believe(problem({16, 32, 64}, 32), trials);
    EXPECT_NEAR(std::sqrt(beliefs.profile_variance), off > 1 ? 0.23 : 0.005, off > 1 ? 0.03 : 1e-9);
    EXPECT_NEAR(std::exp(beliefs.cost.mean(0)), 100, 1);
  }
}

// A run that ended before its knob was measured, or that told of no epochs, has no profile: what it
// paid is what is known, and the next run is not stopped below that. What is believed before any
// run pulls at it, by less than 1 %.
TEST(TuneSizes, TakesWhatARunPaidWhereItHasNoProfile) {
  for (const double epochs : {4.0, 0.0}) {
    Trial first{.batch_size = 64, .state = TrialState::reached, .epochs = epochs, .cost = 1000};
    const auto choice = tune_choose(problem({32, 64, 128}, 64), std::vector{first});
    ASSERT_TRUE(choice.stop_cost) << epochs;
    EXPECT_NEAR(*choice.stop_cost, 2000, 20) << epochs;
  }
}

// GPUs without any energy, counted by energy only: nothing is known of costs, and nothing stopped.
TEST(TuneSizes, ARunThatCostNothingBoundsNothing) {
  const Trial first{.batch_size = 64, .state = TrialState::reached, .epochs = 4, .epoch_cost = 0};
  const auto choice = tune_choose(problem({32, 64, 128}, 64), std::vector{first});
  EXPECT_EQ(choice.batch_size, 64);
  EXPECT_FALSE(choice.stop_cost);
}

// Pruning goes from the default down until one fails, then up; the second round begins at the
// cheapest.
TEST(ZeusSizes, PrunesInThePublishedOrder) {
  ToyRun job{problem({8, 16, 32, 64, 128}, 32)};
  job.epochs = {{8, 101}, {16, 10}, {32, 12}, {64, 14}, {128, 101}};
  for (const int size : job.problem.batch_sizes) job.epoch_cost[size] = 100;
  std::mt19937_64 random(1);
  std::vector<Trial> trials;
  int recurrence = 0;
  while (trials.size() < 9) {
    run_try(*(*find_size_policy("zeus")), job, trials, recurrence, random);
    if (trials.back().state == TrialState::reached) ++recurrence;
  }
  std::vector<int> order;
  for (const Trial& trial : trials) order.push_back(trial.batch_size);
  // 16 is the cheapest of the first round; 8 and 128 are gone in the second.
  const std::vector<int> wanted{32, 16, 8, 64, 128, 16, 32, 64};
  order.resize(wanted.size());
  EXPECT_EQ(order, wanted);
}

TEST(SizePolicies, NamesThoseThereAre) {
  EXPECT_EQ(find_size_policy("random").error().message, "policy 'random': there are tune, zeus");
}

// A reading moves its own value most, and neighbours more than what is far.
TEST(SizeCurve, LearnsNeighboursFromAReading) {
  const std::vector<double> x{-3, -2, -1, 0, 1};
  SizeCurve curve(x, {.slope_sd = 0.1, .wander = 0.2});
  curve.observe(3, 1.0, 1e-6);
  const double far_before = curve.variance_between(0, 3);
  curve.observe(2, 2.0, 1e-6);
  EXPECT_NEAR(curve.mean(2), 2.0, 1e-3);
  EXPECT_NEAR(curve.mean(3), 1.0, 1e-3);
  EXPECT_GT(curve.mean(1), 1.9);
  EXPECT_LT(curve.variance_between(0, 3), far_before);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_GE(curve.covariance(i, i), -1e-9);
}

// However many of its runs were stopped before it: 32 has taken 34 epochs, and what is believed of
// batch sizes around it makes that no more than a tenth fewer.
TEST(SizeBeliefs, ARunThatGotThereIsBelieved) {
  for (const int stops : {0, 1, 3}) {
    const SizeProblem job = problem({32, 64, 128, 256}, 64);
    std::vector<Trial> trials;
    const auto add = [&](int size, TrialState state, double epochs) {
      trials.push_back({.recurrence = static_cast<int>(trials.size()),
                        .batch_size = size,
                        .state = state,
                        .epochs = epochs,
                        .cost = 100 * epochs,
                        .epoch_cost = 100.0});
    };
    for (int i = 0; i < 5; ++i) add(64, TrialState::reached, 19);
    add(256, TrialState::missed, 100);
    for (int i = 0; i < stops; ++i) add(32, TrialState::stopped, 27);
    add(32, TrialState::reached, 34);
    const SizeBeliefs beliefs = believe(job, trials);
    EXPECT_EQ(beliefs.best, 1) << stops;
    EXPECT_GE(std::exp(beliefs.log_cost(0)), 0.9 * 100 * (34 + stops * 27)) << stops;
    EXPECT_LE(std::exp(beliefs.log_cost(0)), 1.1 * 100 * (34 + stops * 27)) << stops;
  }
}

}  // namespace
}  // namespace derate
