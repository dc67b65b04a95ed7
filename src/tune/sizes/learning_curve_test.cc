#include "tune/sizes/learning_curve.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tune/sizes/tune_sizes.h"

namespace derate {
namespace {

SizeProblem big_or_small() {
  SizeProblem out;
  out.batch_sizes = {32, 64};
  out.default_size = 64;
  out.max_epochs = 200;
  out.target = 0.9;
  return out;
}

// How a metric rises: a power of the epochs, at 0.9 after `whole` of them.
struct Curve {
  double whole = 10, power = 0.5, noise = 0;

  double metric(double epoch, std::mt19937_64& random) const {
    const double error = noise * std::normal_distribution<>()(random);
    return 1 - 0.5 * std::pow(0.2, std::pow(epoch / whole, power)) + error;
  }
  // The same job with its metric turned round: a loss.
  static double loss(double metric) { return 1 - metric; }
};

void run_until(Trial& trial, const Curve& curve, double epochs, bool loss = false) {
  std::mt19937_64 random(static_cast<std::uint64_t>(trial.id));
  double best = 0;
  for (double epoch = 1; epoch <= epochs; ++epoch) {
    trial.epochs = epoch;
    const double metric = curve.metric(epoch, random);
    if (metric <= best) continue;
    best = metric;
    trial.marks.push_back({epoch, loss ? Curve::loss(metric) : metric});
  }
}

Trial reached(const Curve& curve, bool loss = false) {
  Trial out{.id = 1, .batch_size = 64, .state = TrialState::reached};
  run_until(out, curve, curve.whole, loss);
  return out;
}

TEST(LearningCurve, TellsHowLongARunTakes) {
  for (const bool loss : {false, true}) {
    SizeProblem problem = big_or_small();
    if (loss) problem.lower_is_better = true, problem.target = Curve::loss(problem.target);
    std::vector<Trial> trials{reached({.whole = 40}, loss), {.id = 2, .batch_size = 32}};
    double last_variance = INFINITY;
    for (const double epochs : {10.0, 30.0, 60.0}) {
      trials[1].marks.clear();
      run_until(trials[1], {.whole = 80}, epochs, loss);
      const auto told = foretell_epochs(problem, trials, 0, 1);
      ASSERT_TRUE(told);
      EXPECT_NEAR(std::exp(told->log_epochs), 80, 8) << epochs;
      EXPECT_LT(told->variance, last_variance);
      last_variance = told->variance;
    }
  }
}

TEST(LearningCurve, TellsNothingWithoutMarks) {
  const SizeProblem problem = big_or_small();
  std::vector<Trial> trials{reached({.whole = 10}), {.id = 2, .batch_size = 32}};
  EXPECT_FALSE(foretell_epochs(problem, trials, 0, 1));  // its first epoch is not over
  run_until(trials[1], {.whole = 20}, 5);
  EXPECT_TRUE(foretell_epochs(problem, trials, 0, 1));
  EXPECT_FALSE(foretell_epochs(problem, trials, 1, 1));  // the job has changed since
  trials[0].marks.clear();
  EXPECT_FALSE(foretell_epochs(problem, trials, 0, 1));
  trials[0] = reached({.whole = 10});
  trials[0].state = TrialState::missed;
  EXPECT_FALSE(foretell_epochs(problem, trials, 0, 1));
}

// Of another target than the one that runs had: where they passed it.
TEST(LearningCurve, GoesByTheTargetOfToday) {
  SizeProblem problem = big_or_small();
  std::vector<Trial> trials{reached({.whole = 40}), {.id = 2, .batch_size = 32}};
  run_until(trials[1], {.whole = 80}, 10);
  const auto far = foretell_epochs(problem, trials, 0, 1);
  problem.target = 0.85;
  const auto near = foretell_epochs(problem, trials, 0, 1);
  ASSERT_TRUE(far && near);
  EXPECT_LT(near->log_epochs, far->log_epochs - 0.2);
  problem.target = 0.95;
  EXPECT_FALSE(foretell_epochs(problem, trials, 0, 1));
}

// Curves of other shapes, with noise: the truth lies within two standard deviations of most.
TEST(LearningCurve, ItsErrorIsAsTold) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<> any(0, 1);
  int within = 0, all = 0;
  for (int i = 0; i < 2000; ++i) {
    const double whole = 10 + std::floor(any(random) * 60), ratio = std::exp(any(random) * 2 - 1);
    const double power = 0.4 + 0.6 * any(random);
    std::vector<Trial> trials{reached({.whole = whole, .power = power, .noise = 0.003}),
                              {.id = 3 + i, .batch_size = 32}};
    trials[0].marks.back().metric = std::max(trials[0].marks.back().metric, 0.9);
    const double other = std::round(whole * ratio);
    run_until(trials[1],
              {.whole = other, .power = power * (0.8 + 0.4 * any(random)), .noise = 0.003},
              std::ceil(other * (0.2 + 0.6 * any(random))));
    const auto told = foretell_epochs(big_or_small(), trials, 0, 1);
    if (!told) continue;
    ++all;
    const double error = told->log_epochs - std::log(other);
    if (error * error <= 4 * told->variance) ++within;
  }
  EXPECT_GT(all, 1900);
  EXPECT_GT(within, 0.9 * all);
}

// Whoever asks may have any marks.
RC_GTEST_PROP(LearningCurve, OddMarksGiveFiniteReadings, ()) {
  std::vector<Trial> trials;
  const int count = *rc::gen::inRange(1, 12);
  for (int i = 0; i < count; ++i) {
    Trial& trial = trials.emplace_back();
    trial.batch_size = *rc::gen::element(32, 64);
    trial.state = *rc::gen::element(TrialState::reached, TrialState::running, TrialState::missed);
    trial.epochs = *rc::gen::inRange(0, 20);
    double epochs = 0, metric = *rc::gen::inRange(-2, 2);
    const int marks = *rc::gen::inRange(0, 6);
    for (int k = 0; k < marks; ++k)
      trial.marks.push_back({epochs += *rc::gen::inRange(0, 3), metric += *rc::gen::inRange(1, 3)});
  }
  const auto running = *rc::gen::inRange<std::size_t>(0, trials.size());
  const auto first = *rc::gen::inRange<std::size_t>(0, trials.size() + 1);
  const auto told = foretell_epochs(big_or_small(), trials, first, running);
  if (!told) return;
  RC_ASSERT(std::isfinite(told->log_epochs));
  RC_ASSERT(std::isfinite(told->variance) && told->variance > 0);
}

// What a try of 32 costs until it is given up or there, in runs of the default, which takes 20
// epochs.
double spent_on(const Curve& curve, bool with_marks) {
  const SizeProblem problem = big_or_small();
  std::vector<Trial> trials;
  for (int i = 0; i < 5; ++i) {
    Trial& run = trials.emplace_back(reached({.whole = 20}));
    run.recurrence = i;
    run.cost = 20 * 100, run.epoch_cost = run.default_epoch_cost = 100;
    if (!with_marks) run.marks.clear();
  }
  trials.push_back({.id = 6, .recurrence = 5, .batch_size = 32, .exploring = true});
  const SizeChoice choice{.batch_size = 32, .exploring = true, .stop_cost = 4000};
  for (int epoch = 1; epoch <= curve.whole; ++epoch) {
    Trial& now = trials.back();
    now.marks.clear();
    if (with_marks) run_until(now, curve, epoch);
    now.epochs = epoch;
    now.cost = 90 * epoch, now.epoch_cost = 90;
    if (tune_watch(problem, trials, 5, choice).stop) break;
  }
  return trials.back().cost / 2000;
}

// Two batch sizes and little to win: what the metric shows to take twice as long is given up before
// it has cost what a run of the default does.
TEST(LearningCurve, ATryThatWouldNotPayIsGivenUpEarly) {
  EXPECT_LT(spent_on({.whole = 40}, true), 0.8);
  EXPECT_GT(spent_on({.whole = 40}, false), 0.8);
}

TEST(LearningCurve, ATryThatPaysGoesOn) {
  for (const double power : {0.4, 0.5, 0.6})
    EXPECT_DOUBLE_EQ(spent_on({.whole = 16, .power = power}, true), 16 * 90 / 2000.0) << power;
}

}  // namespace
}  // namespace derate
