#include "tune/trial_registry.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/test_folder.h"
#include "tune/trial_rows.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLease = 60s;
constexpr std::uint32_t kOwner = 1000, kOther = 1001;

JobSpec bert_job(const std::string& policy = "zeus") {
  return {.name = "bert",
          .batch_sizes = {8, 16, 32},
          .default_size = 16,
          .target = 0.6,
          .max_epochs = 5,
          .policy = policy};
}

TuneRows rows_of(const TrialRegistry& registry) {
  TuneRows out;
  for (const auto& [name, job] : registry.jobs()) {
    out.jobs.push_back(row_of(job));
    for (const std::int64_t id : job.trials) out.trials.push_back(row_of(*registry.find(id)));
  }
  std::sort(out.trials.begin(), out.trials.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return out;
}

class TrialRegistryTest : public testing::Test {
 protected:
  TrialRegistryTest() {
    CHECK(registry.create(bert_job(), kOwner, TrialRegistry::Replace::no, {}).ok());
  }

  Result<const TrialEntry*> begin(std::optional<std::int64_t> retry_of = {},
                                  const std::string& gpu = "GPU-0") {
    return registry.begin({"bert", {gpu}, retry_of, "secret"}, kOwner, now, wall);
  }
  std::int64_t begun(std::optional<std::int64_t> retry_of = {}) {
    const auto trial = begin(retry_of);
    CHECK(trial.ok());
    return (*trial)->trial.id;
  }
  Result<const TrialEntry*> report(std::int64_t id, double epoch, std::optional<double> metric,
                                   double cost = 0) {
    return registry.report(id, own, {.epochs = epoch, .metric = metric}, {.cost = cost}, now);
  }
  Result<TrialEntry> end(std::int64_t id, TrialState outcome, double cost = 0) {
    return registry.end(id, own, outcome, {.cost = cost}, now, wall);
  }
  std::string said(const Result<const TrialEntry*>& result) {
    return result.ok() ? "" : result.error().message;
  }

  TrialRegistry registry{kLease};
  const TrialCaller own{kOwner, "secret"};
  Instant now{};
  WallTime wall{};
};

TEST_F(TrialRegistryTest, ARunReachesItsTarget) {
  const std::int64_t id = begun();
  EXPECT_EQ(registry.find(id)->trial.batch_size, 16);
  EXPECT_TRUE(registry.find(id)->trial.exploring);
  EXPECT_FALSE((*report(id, 1, 0.4, 100))->verdict);
  EXPECT_FALSE((*report(id, 2, 0.3, 200))->verdict);
  const TrialEntry* last = *report(id, 3, 0.61, 300);
  EXPECT_EQ(last->verdict, TrialState::reached);
  EXPECT_EQ(last->verdict_why, "the target 0.6 is reached: 0.61 after 3 epochs");
  const std::vector<EpochMark> marks{{1, 0.4}, {3, 0.61}};
  EXPECT_EQ(last->trial.marks, marks);
  // What the client says counts no more; what it cost until its end does.
  const TrialEntry ended = *end(id, TrialState::infeasible, 320);
  EXPECT_EQ(ended.trial.state, TrialState::reached);
  EXPECT_EQ(ended.trial.cost, 320);
  EXPECT_FALSE(registry.may_retry(ended));
  EXPECT_EQ(said(begin(id)),
            "retry_of 1: its recurrence has reached the target, or another try of "
            "it runs");
}

TEST_F(TrialRegistryTest, AMetricThatNeverComesIsATargetMissed) {
  const std::int64_t id = begun();
  for (int epoch = 1; epoch < 5; ++epoch) EXPECT_FALSE((*report(id, epoch, {}))->verdict);
  EXPECT_EQ((*report(id, 5, {}))->verdict, TrialState::missed);
  EXPECT_EQ(registry.find(id)->verdict_why, "5 epochs are over without the target 0.6");
  // Nobody comes to end it: it was decided all the same.
  ASSERT_EQ(registry.expire(now + kLease, wall).size(), 1u);
  EXPECT_EQ(registry.find(id)->trial.state, TrialState::missed);
}

TEST_F(TrialRegistryTest, WhatMakesNoSenseIsRefusedAndChangesNothing) {
  const std::int64_t id = begun();
  ASSERT_TRUE(report(id, 2, 0.4, 10).ok());
  const TuneRows before = rows_of(registry);
  EXPECT_EQ(said(report(id, 3, NAN, 99)), "metric nan: allowed is a finite number");
  EXPECT_EQ(said(report(id, 3, INFINITY, 99)), "metric inf: allowed is a finite number");
  EXPECT_EQ(said(report(id, 1, 0.5, 99)), "epoch 1: it was 2 before, and does not go back");
  EXPECT_EQ(said(report(id, NAN, 0.5, 99)), "epoch nan: allowed is a number in [0, 1000000000]");
  EXPECT_EQ(said(report(id, 2e9, 0.5, 99)),
            "epoch 2000000000: allowed is a number in [0, 1000000000]");
  EXPECT_EQ(end(id, TrialState::reached).error().message,
            "outcome 'reached': trial 1 was not told so; allowed are missed, infeasible, lost");
  EXPECT_FALSE(end(id, TrialState::stopped).ok());
  EXPECT_FALSE(end(id, TrialState::running).ok());
  EXPECT_EQ(rows_of(registry), before);
  EXPECT_TRUE(report(id, 2, 0.5, 20).ok());  // the same epoch, again
}

TEST_F(TrialRegistryTest, ASilentClientIsGivenUpAndToldSo) {
  const std::int64_t id = begun();
  now += kLease - 1ns;
  EXPECT_TRUE(registry.expire(now, wall).empty());
  EXPECT_TRUE(registry.renew(id, own, now).ok());
  now += kLease - 1ns;
  EXPECT_EQ(said(report(id, 1, NAN)), "metric nan: allowed is a finite number");  // it lives
  now += kLease;
  ASSERT_EQ(registry.expire(now, wall).size(), 1u);
  const char* gone =
      "trial 1 was given up: nothing was heard of it for 60 s; what it does now does "
      "not count";
  EXPECT_EQ(said(report(id, 1, 0.9)), gone);
  EXPECT_EQ(said(registry.renew(id, own, now)), gone);
  EXPECT_EQ(end(id, TrialState::missed).error().message, gone);
  EXPECT_EQ(registry.find(id)->trial.state, TrialState::lost);
  const std::int64_t next = begun(id);
  EXPECT_EQ(registry.find(next)->trial.recurrence, 0);
  EXPECT_EQ(registry.tries_of(*registry.find(next)), 2);
}

TEST_F(TrialRegistryTest, ATimeOfDayThatJumpsGivesNobodyUp) {
  const std::int64_t id = begun();
  for (const Duration jump : {Duration(-20000h), Duration(40000h)}) {
    wall += jump;
    EXPECT_TRUE(registry.expire(now, wall).empty());
  }
  EXPECT_TRUE(report(id, 1, 0.1).ok());
}

TEST_F(TrialRegistryTest, AnotherUserAndAWrongTokenAreRefused) {
  const std::int64_t id = begun();
  const TuneRows before = rows_of(registry);
  EXPECT_EQ(said(registry.report(id, {kOther, "secret"}, {.epochs = 1}, {}, now)),
            "trial 1 is user 1000's, not user 1001's");
  EXPECT_EQ(said(registry.renew(id, {kOwner, "guess"}, now)), "trial 1: the token is not its own");
  EXPECT_EQ(said(registry.renew(id, {0, "guess"}, now)), "trial 1: the token is not its own");
  EXPECT_EQ(registry.end(id, {kOther, "secret"}, TrialState::lost, {}, now, wall).error().code,
            Errc::no_permission);
  EXPECT_EQ(said(registry.begin({"bert", {"GPU-1"}, {}, "x"}, kOther, now, wall)),
            "job 'bert' is user 1000's, not user 1001's");
  EXPECT_EQ(registry.remove("bert", kOther).error().code, Errc::no_permission);
  EXPECT_EQ(registry.create(bert_job(), kOther, TrialRegistry::Replace::yes, wall).error().code,
            Errc::no_permission);
  EXPECT_EQ(rows_of(registry), before);
  EXPECT_TRUE(registry.renew(id, {0, "secret"}, now).ok());
}

TEST_F(TrialRegistryTest, AGpuHasOneTrial) {
  begun();
  EXPECT_EQ(said(registry.begin({"bert", {"GPU-1", "GPU-0"}, {}, "x"}, kOwner, now, wall)),
            "GPU-0 has trial 1 of job 'bert', of user 1000");
  EXPECT_TRUE(begin({}, "GPU-1").ok());
  now += kLease;
  EXPECT_TRUE(begin().ok());  // who is gone holds nothing
}

TEST_F(TrialRegistryTest, AJobIsRegisteredAgain) {
  using Created = TrialRegistry::Created;
  const auto create = [&](const JobSpec& spec, TrialRegistry::Replace replace) {
    return registry.create(spec, kOwner, replace, wall);
  };
  EXPECT_EQ(*create(bert_job(), TrialRegistry::Replace::no), Created::unchanged);
  JobSpec other = bert_job();
  other.batch_sizes = {32, 16, 8};
  EXPECT_EQ(*create(other, TrialRegistry::Replace::yes), Created::unchanged);
  const std::int64_t id = begun();
  ASSERT_TRUE(end(id, TrialState::missed).ok());
  other.target = 0.7;
  other.eta = 1;
  EXPECT_EQ(
      create(other, TrialRegistry::Replace::no).error().message,
      "job 'bert' is there with another target (0.6, now 0.7), eta (0.5, now 1); replacing it "
      "forgets its 1 trials");
  const std::int64_t second = begun();
  EXPECT_EQ(create(other, TrialRegistry::Replace::yes).error().message, "job 'bert': trial 2 runs");
  ASSERT_TRUE(end(second, TrialState::lost).ok());
  EXPECT_EQ(*create(other, TrialRegistry::Replace::yes), Created::replaced);
  EXPECT_TRUE(registry.jobs().at("bert").trials.empty());
  EXPECT_EQ(begun(), 3);  // an id is never another's
  EXPECT_EQ(registry.job("brt").error().message, "there is no job 'brt'; did you mean 'bert'?");
}

TEST_F(TrialRegistryTest, AUserLeavesRoomForOthers) {
  JobSpec spec = bert_job();
  const auto create = [&](std::size_t i, std::uint32_t uid) {
    spec.name = fmt::format("job{}", i);
    return registry.create(spec, uid, TrialRegistry::Replace::no, wall);
  };
  for (std::size_t i = 0; i < TrialRegistry::kMostJobsOfUser; ++i)
    ASSERT_TRUE(create(i, kOther).ok());
  EXPECT_EQ(create(500, kOther).error().code, Errc::busy);
  EXPECT_TRUE(create(500, kOwner).ok());
  for (std::size_t i = 1000; registry.jobs().size() < TrialRegistry::kMostJobsEver; ++i)
    ASSERT_TRUE(create(i, 0).ok());
  EXPECT_EQ(create(9999, 0).error().code, Errc::busy);
}

// A user with subordinate ids is one person, and a crowd of people does not use up all jobs.
TEST_F(TrialRegistryTest, JobsAreSharedByPerson) {
  constexpr std::uint32_t kFirst = 100000, kNew = 2999;
  registry.people([](std::uint32_t uid) { return uid >= kFirst ? kOther : uid; });
  JobSpec spec = bert_job();
  std::size_t number = 0;
  const auto create = [&](std::uint32_t uid) {
    spec.name = fmt::format("job{}", number++);
    return registry.create(spec, uid, TrialRegistry::Replace::no, wall).ok();
  };
  const std::size_t before = registry.jobs().size();
  for (std::uint32_t i = 0; i < 10 * TrialRegistry::kMostJobsOfUser; ++i) create(kFirst + i);
  EXPECT_EQ(registry.jobs().size(), before + TrialRegistry::kMostJobsOfUser);
  for (std::uint32_t i = 0; registry.jobs().size() < TrialRegistry::kMostJobs; ++i)
    ASSERT_TRUE(create(3000 + i / 50));
  for (std::size_t i = 0; i < TrialRegistry::kJobsOfEach; ++i) EXPECT_TRUE(create(kNew));
  EXPECT_FALSE(create(kNew));
  EXPECT_FALSE(create(kFirst));
  EXPECT_TRUE(create(0));
}

// A file that somebody has edited, or that an earlier version wrote, is no reason to end.
TEST_F(TrialRegistryTest, ATrialOfASizeThatTheJobDoesNotHaveIsLeftOut) {
  ASSERT_TRUE(end(begun(), TrialState::missed).ok());
  TuneRows rows = rows_of(registry);
  rows.trials.at(0).batch_size = 7;
  TrialRegistry again{kLease};
  EXPECT_EQ(restore_trials(again, rows, now),
            std::vector<std::string>{"trial 1 is left out: job 'bert' has no batch size 7"});
  EXPECT_TRUE(again.jobs().at("bert").trials.empty());
  EXPECT_TRUE(again.begin({"bert", {"GPU-0"}, {}, "secret"}, kOwner, now, wall).ok());
}

TEST_F(TrialRegistryTest, SizesThatDoNotFitAreNotOfferedAgain) {
  std::map<int, int> offered;
  std::optional<std::int64_t> of;
  while (true) {
    const auto trial = begin(of);
    if (!trial.ok()) {
      EXPECT_EQ(trial.error().code, Errc::not_supported);
      EXPECT_EQ(trial.error().message, "job 'bert': every batch size (8, 16, 32) was infeasible");
      break;
    }
    of = (*trial)->trial.id;
    ++offered[(*trial)->trial.batch_size];
    ASSERT_TRUE(end(*of, TrialState::infeasible).ok());
    ASSERT_LT(*of, 20);
  }
  EXPECT_EQ(offered.size(), 3u);
  for (const auto& [size, times] : offered) EXPECT_EQ(times, 1) << size;
}

TEST_F(TrialRegistryTest, ASizeThatRanIsBelievedOnceToBeInfeasible) {
  const std::vector<Trial> once{
      {.id = 1, .batch_size = 16, .state = TrialState::reached, .epochs = 3},
      {.id = 2, .batch_size = 16, .state = TrialState::infeasible}};
  std::vector<Trial> twice = once;
  twice.push_back({.id = 3, .batch_size = 16, .state = TrialState::infeasible});
  JobSpec job = bert_job();
  job.batch_sizes = {16};
  EXPECT_EQ(choose_size(job, once)->batch_size, 16);
  EXPECT_FALSE(choose_size(job, twice).ok());
}

TEST_F(TrialRegistryTest, AClientIsNotTriedForEver) {
  std::optional<std::int64_t> of;
  for (int i = 0; i < TrialRegistry::kMostTries; ++i) {
    const std::int64_t id = begun(of);
    EXPECT_EQ(registry.find(id)->trial.recurrence, 0);
    ASSERT_TRUE(end(id, TrialState::missed).ok());
    of = id;
  }
  EXPECT_FALSE(registry.may_retry(*registry.find(*of)));
  EXPECT_EQ(said(begin(of)), "job 'bert': 20 tries have not reached the target 0.6");
}

TEST_F(TrialRegistryTest, WhatIsDearIsStopped) {
  const std::int64_t first = begun();
  ASSERT_TRUE(report(first, 1, 0.7, 100).ok());
  ASSERT_TRUE(end(first, TrialState::reached, 100).ok());
  const std::int64_t id = begun();
  ASSERT_TRUE(registry.find(id)->stop_cost);
  const double bound = *registry.find(id)->stop_cost;
  EXPECT_EQ(bound, 200);
  EXPECT_FALSE((*report(id, 1, 0.1, 0.9 * bound))->verdict);
  EXPECT_EQ((*report(id, 2, 0.2, 1.1 * bound))->verdict, TrialState::stopped);
  EXPECT_EQ((*end(id, TrialState::stopped)).trial.state, TrialState::stopped);
}

// Shares of a cheapest run that cost nothing are no numbers: they would bound nothing, and no file
// keeps them.
TEST_F(TrialRegistryTest, WhereRunsCostNothingEveryBoundIsANumber) {
  ASSERT_TRUE(registry.create(bert_job("tune"), kOwner, TrialRegistry::Replace::yes, wall).ok());
  for (int i = 0; i < 6; ++i) {
    const std::int64_t id = begun();
    EXPECT_TRUE(std::isfinite(registry.find(id)->stop_cost.value_or(0))) << i;
    const TrialPaid nothing{.epoch_cost = 0.0, .default_epoch_cost = 0.0};
    ASSERT_TRUE(
        registry.report(id, own, {.epochs = 1, .metric = i == 1 ? 0.7 : 0}, nothing, now).ok());
    ASSERT_TRUE(end(id, TrialState::missed).ok());
  }
}

TEST_F(TrialRegistryTest, WithoutAJobNothingIsJudgedOrKept) {
  const auto trial = registry.begin({"", {"GPU-0"}, {}, "secret"}, kOther, now, wall);
  const std::int64_t id = (*trial)->trial.id;
  EXPECT_FALSE((*registry.report(id, {kOther, "secret"}, {.epochs = 1e6}, {}, now))->verdict);
  EXPECT_FALSE(begin().ok());  // the GPU is taken
  EXPECT_TRUE(registry.take_changes().trials.empty());
  EXPECT_TRUE(registry.end(id, {kOther, "secret"}, TrialState::reached, {}, now, wall).ok());
  EXPECT_EQ(registry.find(id), nullptr);
}

TEST_F(TrialRegistryTest, WhatWouldBeRefusedIsToldBeforehand) {
  const std::int64_t id = begun();
  ASSERT_TRUE(report(id, 2, 0.4, 10).ok());
  const TrialEntry before = *registry.find(id);
  EXPECT_EQ(said(registry.check(id, own, {.epochs = 1}, now)),
            "epoch 1: it was 2 before, and does not go back");
  EXPECT_TRUE(registry.check(id, own, {.epochs = 3, .metric = 0.9}, now).ok());
  EXPECT_EQ(*registry.find(id), before);
}

// A curve of thousands of marks is kept as a few of them, the first and the last among them.
TEST_F(TrialRegistryTest, MarksOfATrialThatHasEndedAreFew) {
  ASSERT_TRUE(registry
                  .create({.name = "long",
                           .batch_sizes = {8},
                           .default_size = 8,
                           .target = 1e9,
                           .max_epochs = 100'000},
                          kOwner, TrialRegistry::Replace::no, wall)
                  .ok());
  const auto begun = registry.begin({"long", {"GPU-1"}, {}, "secret"}, kOwner, now, wall);
  const std::int64_t id = (*begun)->trial.id;
  for (int epoch = 1; epoch <= 1000; ++epoch) ASSERT_TRUE(report(id, epoch, epoch).ok());
  EXPECT_EQ(registry.find(id)->trial.marks.size(), 1000u);
  const auto ended = *end(id, TrialState::missed);
  ASSERT_EQ(ended.trial.marks.size(), TrialRegistry::kMostMarksKept);
  EXPECT_EQ(ended.trial.marks.front(), (EpochMark{1, 1}));
  EXPECT_EQ(ended.trial.marks.back(), (EpochMark{1000, 1000}));
  EXPECT_TRUE(std::is_sorted(ended.trial.marks.begin(), ended.trial.marks.end(),
                             [](const auto& a, const auto& b) { return a.epochs < b.epochs; }));
}

// The policy sees curves: 32 would take twice the epochs of 64, which its metric shows early.
TEST_F(TrialRegistryTest, ATryWhoseMetricIsLateIsGivenUp) {
  JobSpec job = bert_job("tune");
  job.name = "late", job.batch_sizes = {32, 64}, job.default_size = 64, job.max_epochs = 100;
  ASSERT_TRUE(registry.create(job, kOwner, TrialRegistry::Replace::no, wall).ok());
  int tried = 0;
  for (int run = 0; run < 15; ++run) {
    const TrialEntry* trial = *registry.begin({"late", {"GPU-1"}, {}, "secret"}, kOwner, now, wall);
    const std::int64_t id = trial->trial.id;
    const bool other = trial->trial.batch_size == 32;
    const double whole = other ? 40 : 20, epoch_cost = other ? 90 : 100;
    for (int epoch = 1; !trial->verdict; ++epoch) {
      const TrialPaid paid{.cost = epoch * epoch_cost,
                           .epoch_cost = epoch_cost,
                           .default_epoch_cost = other ? std::nullopt : std::optional(epoch_cost)};
      const double metric = 1 - 0.8 * std::pow(0.5, std::sqrt(epoch / whole));
      trial = *registry.report(id, own, {.epochs = 1.0 * epoch, .metric = metric}, paid, now);
    }
    if (other) {
      EXPECT_EQ(trial->verdict, TrialState::stopped);
      EXPECT_LT(trial->trial.epochs, 15);
      ++tried;
    }
    ASSERT_TRUE(end(id, *trial->verdict).ok());
  }
  EXPECT_GT(tried, 0);
}

// --- a job that runs for ever --------------------------------------------------------------------

// What one run of a batch size costs, the same each time: 16 is the default, 32 is the best.
double cost_of_run(int batch_size) { return batch_size == 32 ? 80 : batch_size == 16 ? 100 : 130; }

// Runs that reach their target, now and then with a try before that is lost or missed; the batch
// sizes that they ran with.
std::set<int> run_for_ever(TrialRegistry& registry, int runs, JobSums& truth) {
  const TrialCaller own{kOwner, "secret"};
  std::set<int> sizes;
  for (int run = 0; run < runs; ++run) {
    std::optional<std::int64_t> of;
    double paid = 0;
    while (true) {
      const auto begun = registry.begin({"bert", {"GPU-0"}, of, "secret"}, kOwner, {}, {});
      CHECK(begun.ok());
      const std::int64_t id = (*begun)->trial.id;
      const int size = (*begun)->trial.batch_size;
      CHECK((*begun)->trial.recurrence == truth.recurrences);
      ++truth.trials;
      sizes.insert(size);
      const bool good = of || run % 7 != 3;
      const double cost = good ? cost_of_run(size) : 10;
      paid += cost;
      const TrialPaid all{.cost = cost, .epoch_cost = cost / 2, .default_epoch_cost = 50.0};
      CHECK(registry.report(id, own, {.epochs = 2, .metric = good ? 0.7 : 0.1}, all, {}).ok());
      const auto fate = good           ? TrialState::reached
                        : run % 2 == 0 ? TrialState::lost
                                       : TrialState::missed;
      CHECK(registry.end(id, own, fate, all, {}, {}).ok());
      if (good) {
        ++truth.reached, ++truth.recurrences;
        if (paid < truth.cheapest.value_or(INFINITY)) {
          truth.cheapest = paid;
          truth.cheapest_recurrence = truth.recurrences - 1;
          truth.cheapest_size = size;
        }
        break;
      }
      of = id;
    }
  }
  return sizes;
}

class ForEver : public testing::TestWithParam<const char*> {};

// The oldest runs become sums: a trial is never refused for their number, what policies go by is
// kept, and so is what people are told.
TEST_P(ForEver, OldRunsAreFoldedIntoSums) {
  TrialRegistry registry(kLease);
  ASSERT_TRUE(registry.create(bert_job(GetParam()), kOwner, TrialRegistry::Replace::no, {}).ok());
  JobSums truth;
  std::set<int> ran = run_for_ever(registry, 100, truth);
  const auto early =
      choose_size(registry.jobs().at("bert").spec, registry.trials_of(registry.jobs().at("bert")));
  ran.merge(run_for_ever(registry, 3000, truth));
  const JobEntry& job = registry.jobs().at("bert");
  EXPECT_EQ(job.sums, truth);
  EXPECT_LE(job.trials.size(), TrialRegistry::kMostTrials);
  EXPECT_GE(job.trials.size(), TrialRegistry::kMostTrials - 2 * TrialRegistry::kFoldedAtOnce);
  EXPECT_EQ(job.folded.trials + static_cast<std::int64_t>(job.trials.size()), truth.trials);
  const std::vector<Trial> kept = registry.trials_of(job);
  EXPECT_EQ(cheapest_run(kept), truth.cheapest);
  const auto choice = choose_size(job.spec, kept, job.folded.trials);
  EXPECT_FALSE(choice->exploring);
  EXPECT_EQ(choice->stop_cost.has_value(), early->stop_cost.has_value());
  EXPECT_GT(choice->stop_cost.value_or(0), *truth.cheapest);
  EXPECT_LT(choice->stop_cost.value_or(0), 3 * *truth.cheapest);
  // Every batch size that was ever seen is still known.
  std::set<int> sizes;
  for (const Trial& trial : kept) sizes.insert(trial.batch_size);
  EXPECT_EQ(sizes, ran);
}

// Where room is short a job keeps few trials, goes on as before, and other users' stay as they are.
TEST_P(ForEver, AUsersJobsAreFoldedFurther) {
  TrialRegistry registry(kLease);
  ASSERT_TRUE(registry.create(bert_job(GetParam()), kOwner, TrialRegistry::Replace::no, {}).ok());
  JobSums truth;
  run_for_ever(registry, 400, truth);
  const JobEntry before = registry.jobs().at("bert");
  registry.fold_jobs_of(kOther);
  EXPECT_EQ(registry.jobs().at("bert"), before);
  registry.fold_jobs_of(kOwner);
  const JobEntry& job = registry.jobs().at("bert");
  EXPECT_LE(job.trials.size(), TrialRegistry::kFewTrials);
  EXPECT_EQ(job.trials.back(), before.trials.back());
  EXPECT_EQ(cheapest_run(registry.trials_of(job)), truth.cheapest);
  run_for_ever(registry, 20, truth);
  EXPECT_EQ(job.sums, truth);
}

Result<void> keep_changes(TrialRegistry& registry, TuneStore& store) {
  return store.write(rows_of(registry, registry.take_changes()));
}

// What was folded stays so: in the file, too, which has no more trials than the registry.
TEST_P(ForEver, AFileKeepsTheSums) {
  const Folder folder;
  TrialRegistry registry(kLease), again(kLease);
  ASSERT_TRUE(registry.create(bert_job(GetParam()), kOwner, TrialRegistry::Replace::no, {}).ok());
  JobSums truth;
  {
    TuneStore store(folder.file("tune.db"));
    for (int i = 0; i < 4; ++i) {
      run_for_ever(registry, 200, truth);
      ASSERT_TRUE(keep_changes(registry, store).ok());
    }
    const TuneRows rows = *store.load();
    EXPECT_EQ(rows.trials.size(), registry.jobs().at("bert").trials.size());
    EXPECT_EQ(restore_trials(again, rows, {}), std::vector<std::string>{});
  }
  EXPECT_EQ(again.jobs(), registry.jobs());
  EXPECT_EQ(again.jobs().at("bert").sums, truth);
  run_for_ever(again, 1, truth);
  EXPECT_EQ(again.jobs().at("bert").sums, truth);
}
INSTANTIATE_TEST_SUITE_P(Policies, ForEver, testing::Values("tune", "zeus"));

// A policy that draws goes on drawing when the number of trials it sees stays the same.
TEST(TrialRegistry, DrawsGoOnAmongFoldedTrials) {
  std::vector<Trial> trials;
  const JobSpec job = bert_job();
  const int sizes[] = {16, 8, 32, 16, 8, 32, 8, 16, 32, 8, 16, 32};  // two rounds of pruning first
  for (int i = 0; i < 12; ++i)
    trials.push_back({.id = i,
                      .recurrence = i,
                      .batch_size = sizes[i],
                      .exploring = i < 6,
                      .state = TrialState::reached,
                      .epochs = 2,
                      .cost = 100.0 + i % 4 * 20,
                      .epoch_cost = 50.0});
  std::set<int> drawn;
  for (int folded = 0; folded < 50; ++folded)
    drawn.insert(choose_size(job, trials, folded)->batch_size);
  EXPECT_GT(drawn.size(), 1u);
}

// --- properties ----------------------------------------------------------------------------------

// A machine with GPUs, users and clients that do anything, over a registry that is kept in a file.
class Street {
 public:
  Street() {
    restart();
    for (const char* name : {"bert", "vgg"}) {
      JobSpec job = bert_job(name == std::string("bert") ? "zeus" : "tune");
      job.name = name;
      RC_ASSERT(book_.create(job, kOwner, TrialRegistry::Replace::no, wall_).ok());
    }
  }
  Street(const Street&) = delete;
  Street& operator=(const Street&) = delete;

  void step() {
    switch (*rc::gen::weightedElement<int>({{4, 0}, {8, 1}, {3, 2}, {2, 3}, {1, 4}, {2, 5}})) {
      case 0:
        return begin();
      case 1:
        return report();
      case 2:
        return end();
      case 3:
        now_ += std::chrono::seconds(*rc::gen::inRange(1, 50));
        wall_ += std::chrono::hours(*rc::gen::inRange(-100, 100));
        (void)book_.expire(now_, wall_);
        return;
      case 4:
        return restart();
      default:
        return foreign();
    }
  }

  void check() {
    RC_ASSERT(keep_changes(book_, *store_).ok());
    std::map<std::string, std::int64_t> gpus;
    std::map<std::pair<std::string, int>, int> tries;
    std::size_t seen = 0;
    for (const auto& [name, job] : book_.jobs()) {
      RC_ASSERT(std::is_sorted(job.trials.begin(), job.trials.end()));
      for (const std::int64_t id : job.trials) {
        const TrialEntry& trial = *book_.find(id);
        const Trial& t = trial.trial;
        ++seen;
        RC_ASSERT(begun_.at(id) == std::pair(name, t.batch_size));
        RC_ASSERT(++tries[std::pair(name, t.recurrence)] <= TrialRegistry::kMostTries);
        RC_ASSERT((t.cost >= cost_[id] && t.profiling_cost <= t.cost));
        cost_[id] = t.cost;
        if (t.state != TrialState::running) continue;
        for (const std::string& gpu : trial.gpus) RC_ASSERT(gpus.emplace(gpu, id).second);
      }
      check_recurrences(job);
    }
    RC_ASSERT(seen == begun_.size());
  }

  // Each has an end, when all clients are dead.
  void all_die() {
    now_ += kLease;
    (void)book_.expire(now_, wall_);
    RC_ASSERT(book_.running().empty());
    check();
    const TuneRows before = rows_of(book_);
    restart();
    RC_ASSERT(rows_of(book_) == before);
  }

 private:
  void check_recurrences(const JobEntry& job) {
    std::map<int, TrialState> last;
    for (const std::int64_t id : job.trials) {
      const Trial& t = book_.find(id)->trial;
      const auto before = last.find(t.recurrence);
      RC_ASSERT((before == last.end() ||
                 (before->second != TrialState::running && before->second != TrialState::reached)));
      last[t.recurrence] = t.state;
    }
  }

  // A daemon that was killed: what was kept is what there is.
  void restart() {
    const TuneRows before = rows_of(book_);
    if (store_ != nullptr) RC_ASSERT(keep_changes(book_, *store_).ok());
    store_ = std::make_unique<TuneStore>(folder_.file("tune.db"));
    book_ = TrialRegistry(kLease);
    const TuneRows rows = *store_->load();
    RC_ASSERT(restore_trials(book_, rows, now_).empty());
    RC_ASSERT(rows_of(book_) == before);
    RC_ASSERT(rows.trials == before.trials);
  }

  void begin() {
    TrialBegin wanted{.job = *rc::gen::element<std::string>("bert", "vgg")};
    wanted.gpus = {"GPU-" + std::to_string(*rc::gen::inRange(0, 4))};
    if (!begun_.empty() && *rc::gen::inRange(0, 3) == 0) wanted.retry_of = some_trial();
    wanted.token = "token " + std::to_string(begun_.size());
    const auto trial = book_.begin(wanted, kOwner, now_, wall_);
    if (trial.ok()) {
      const bool fresh =
          begun_.emplace((*trial)->trial.id, std::pair(wanted.job, (*trial)->trial.batch_size))
              .second;
      RC_ASSERT(fresh);
    } else {
      RC_ASSERT((trial.error().code == Errc::busy || trial.error().code == Errc::not_found ||
                 trial.error().code == Errc::not_supported));
    }
  }

  std::int64_t some_trial() {
    auto at = begun_.begin();
    std::advance(at, *rc::gen::inRange<std::size_t>(0, begun_.size()));
    return at->first;
  }
  // Mostly one that runs.
  std::optional<std::int64_t> some_running() {
    const auto running = book_.running();
    if (!running.empty() && *rc::gen::inRange(0, 5) > 0) return *rc::gen::elementOf(running);
    return begun_.empty() ? std::nullopt : std::optional(some_trial());
  }

  void report() {
    const auto id = some_running();
    if (!id) return;
    const TrialEntry trial = *book_.find(*id);
    TrialProgress progress{.epochs = trial.trial.epochs + *rc::gen::inRange(-1, 3)};
    if (*rc::gen::arbitrary<bool>())
      progress.metric = *rc::gen::element(0.1, 0.3, 0.5, 0.65, NAN, -INFINITY);
    const TrialPaid paid{.cost = trial.trial.cost + *rc::gen::inRange(-50, 200) * 1.0,
                         .epoch_cost = *rc::gen::inRange(1, 100) * 1.0};
    const bool good = progress.epochs >= trial.trial.epochs &&
                      std::isfinite(progress.metric.value_or(0)) &&
                      trial.trial.state == TrialState::running;
    const auto done = book_.report(*id, {kOwner, trial.token}, progress, paid, now_);
    RC_ASSERT(done.ok() == good);
    if (!good) RC_ASSERT(*book_.find(*id) == trial);
  }

  void end() {
    const auto id = some_running();
    if (!id) return;
    const TrialEntry before = *book_.find(*id);
    const auto outcome = *rc::gen::element(TrialState::reached, TrialState::missed,
                                           TrialState::infeasible, TrialState::lost);
    const auto ended = book_.end(*id, {kOwner, before.token}, outcome, {}, now_, wall_);
    const TrialEntry& after = *book_.find(*id);
    if (before.trial.state != TrialState::running || !ended.ok()) {
      RC_ASSERT(after == before);
      return;
    }
    RC_ASSERT(after.trial.state == before.verdict.value_or(outcome));
  }

  void foreign() {
    const auto id = some_running();
    if (!id) return;
    const TrialEntry before = *book_.find(*id);
    const TrialCaller who = *rc::gen::arbitrary<bool>() ? TrialCaller{kOther, before.token}
                                                        : TrialCaller{kOwner, "guess"};
    RC_ASSERT(book_.report(*id, who, {.epochs = 3}, {.cost = 1e9}, now_).error().code ==
              Errc::no_permission);
    RC_ASSERT(book_.end(*id, who, TrialState::lost, {}, now_, wall_).error().code ==
              Errc::no_permission);
    RC_ASSERT(!book_.renew(*id, who, now_).ok());
    RC_ASSERT(*book_.find(*id) == before);
  }

  const Folder folder_;
  std::unique_ptr<TuneStore> store_;
  TrialRegistry book_{kLease};
  Instant now_{};
  WallTime wall_{};
  std::map<std::int64_t, std::pair<std::string, int>> begun_;
  std::map<std::int64_t, double> cost_;
};

RC_GTEST_PROP(TrialRegistry, LosesAndCountsTwiceNothing, ()) {
  Street street;
  const int steps = *rc::gen::inRange(1, 80);
  for (int i = 0; i < steps; ++i) {
    street.step();
    street.check();
  }
  street.all_die();
}

// Nothing takes the changes, as while the disk is full.
TEST(TrialRegistry, JobsThatComeAndGoUnwrittenAreBounded) {
  TrialRegistry registry(kLease);
  JobSpec job = bert_job();
  Result<TrialRegistry::Created> made = TrialRegistry::Created::anew;
  for (std::size_t i = 0; made.ok() && i < 2 * TrialRegistry::kMostJobs; ++i) {
    job.name = fmt::format("job{}", i);
    made = registry.create(job, kOwner, TrialRegistry::Replace::no, {});
    if (!made.ok()) break;
    ASSERT_TRUE(registry.remove(job.name, kOwner).ok());
  }
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::busy);
  EXPECT_EQ(registry.take_changes().removed.size(), TrialRegistry::kMostJobs);
  EXPECT_TRUE(registry.create(job, kOwner, TrialRegistry::Replace::no, {}).ok());
}

// Two rounds over three sizes are six trials; a seventh would be a pruning that does not move on.
RC_GTEST_PROP(TrialRegistry, ADeadClientNeverStallsPruning, ()) {
  TrialRegistry registry(kLease);
  RC_ASSERT(registry.create(bert_job(), kOwner, TrialRegistry::Replace::no, {}).ok());
  Instant now{};
  int explored = 0;
  for (int i = 0; i < 200; ++i) {
    const auto trial = registry.begin({"bert", {}, {}, "t"}, kOwner, now, {});
    if (!trial.ok()) return;  // none fits
    if (!(*trial)->trial.exploring) break;
    const std::int64_t id = (*trial)->trial.id;
    const auto fate = *rc::gen::element(TrialState::running, TrialState::lost, TrialState::missed,
                                        TrialState::infeasible, TrialState::reached);
    if (fate == TrialState::running) {  // its client dies, and others run beside it meanwhile
      RC_ASSERT(!(*registry.begin({"bert", {}, {}, "t"}, kOwner, now, {}))->trial.exploring);
      now += kLease;
      continue;
    }
    if (fate == TrialState::reached)
      RC_ASSERT(
          registry.report(id, {kOwner, "t"}, {.epochs = 1, .metric = 1}, {.cost = 1}, now).ok());
    RC_ASSERT(registry.end(id, {kOwner, "t"}, fate, {}, now, {}).ok());
    if (fate != TrialState::lost) ++explored;
  }
  RC_ASSERT(explored <= 6);
  // All dead: still somebody explores next, or pruning is over.
  now += kLease;
  const JobEntry& job = registry.jobs().at("bert");
  (void)registry.expire(now, {});
  const auto choice = choose_size(job.spec, registry.trials_of(job));
  RC_ASSERT((!choice.ok() || choice->exploring || explored > 0));
}

}  // namespace
}  // namespace derate
