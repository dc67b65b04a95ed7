#include "tune/study/replay.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"

namespace derate {
namespace {

constexpr const char* kTrain =
    "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch\n"
    "squad,bert_base_uncased,16,adamw,1e-4,1,84.0,4\n"
    "squad,bert_base_uncased,16,adamw,1e-4,2,84.0,\n"
    "squad,bert_base_uncased,32,adamw,1e-4,1,84.0,5\n"
    "squad,bert_base_uncased,32,adamw,1e-4,2,83.0,3\n";
constexpr const char* kPower =
    "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
    "squad,bert_base_uncased,16,adamw,250,10,200\n"
    "squad,bert_base_uncased,16,adamw,150,12,140\n"
    "squad,bert_base_uncased,32,adamw,150,11,130\n"
    "squad,bert_base_uncased,32,adamw,250,10,230\n";

const TraceTask& squad() { return trace_tasks()[2]; }

TraceJob small_job() {
  return *make_trace_job(squad(), *parse_train_trace(kTrain, "t"), *parse_power_trace(kPower, "p"));
}

TEST(Trace, JoinsBothTables) {
  const TraceJob job = small_job();
  ASSERT_EQ(job.sizes.size(), 2u);
  EXPECT_EQ(job.sizes[0].runs, (std::vector<std::optional<int>>{4, std::nullopt}));
  EXPECT_EQ(job.sizes[1].runs, std::vector<std::optional<int>>{5});
  EXPECT_EQ(job.sizes[1].points.front().limit_w, 150);
  EXPECT_EQ(job.max_power_w, 250);
  EXPECT_EQ(job.default_size, 32);
}

TEST(Trace, NamesTheCellThatIsMissing) {
  const std::string head = std::string(kPower).substr(0, std::string(kPower).find('\n') + 1);
  EXPECT_EQ(parse_power_trace(head + "squad,bert,16,adamw,250,,200\n", "p.csv").error().message,
            "p.csv:2: time_per_epoch '': wanted a number in [1e-06, 1000000000]");
  EXPECT_EQ(parse_power_trace(head + "squad,bert,0,adamw,250,1,200\n", "p.csv").error().message,
            "p.csv:2: batch_size '0': wanted an integer in [1, 16777216]");
  EXPECT_EQ(parse_power_trace(head + "squad,bert,16\n", "p.csv").error().message,
            "p.csv:2: 3 cells where the header has 7");
  EXPECT_EQ(parse_power_trace("dataset\nsquad\n", "p.csv").error().message,
            "p.csv:1: no column 'network'");
  EXPECT_EQ(parse_power_trace("", "p.csv").error().message, "p.csv: empty");
  EXPECT_EQ(parse_train_trace("dataset,network,batch_size,optimizer,target_metric,target_epoch\n"
                              "a,b,16,c,84,four\n",
                              "t.csv")
                .error()
                .message,
            "t.csv:2: target_epoch 'four': wanted an integer in [1, 1048576]");
}

TEST(Trace, RefusesALimitThatIsThereTwice) {
  const auto power = *parse_power_trace(
      std::string(kPower) + "squad,bert_base_uncased,16,adamw,150,13,140\n", "p");
  EXPECT_EQ(make_trace_job(squad(), *parse_train_trace(kTrain, "t"), power).error().message,
            "bert/squad: batch size 16 has two rows for 150 W");
}

TEST(Trace, SaysWhatATaskLacks) {
  EXPECT_EQ(make_trace_job(squad(), {}, {}).error().message,
            "bert/squad: the train trace has no run to target 84");
  // One that never got there is none.
  const std::string head = std::string(kTrain).substr(0, std::string(kTrain).find('\n') + 1);
  const auto missed =
      *parse_train_trace(head + "squad,bert_base_uncased,32,adamw,1e-4,1,84.0,nan\n", "t");
  EXPECT_EQ(make_trace_job(squad(), missed, {}).error().message,
            "bert/squad: the train trace has no run to target 84");
  EXPECT_EQ(make_trace_job(squad(), *parse_train_trace(kTrain, "t"), {}).error().message,
            "bert/squad: no batch size is in both traces");
}

// By hand: batch size 16 reaches its target in every second run, after 4 epochs; a miss is charged
// 6. (4 + 6) epochs a success at 150 W: 12 s and 1680 J each, cost 0.5 * 1680 + 0.5 * 250 * 12 =
// 2340 J an epoch, 23400 J. 32: 5 epochs at 150 W, 11 s, 1430 J, 2090 J: 10450 J, the oracle.
TEST(Replay, KnowsTheBestFixedPair) {
  const FixedCosts fixed = fixed_costs(small_job(), {});
  EXPECT_EQ(fixed.early.best, (SizeAndLimit{32, 150}));
  EXPECT_NEAR(fixed.oracle.cost_j, 10450, 1e-9);
  EXPECT_NEAR(fixed.by_default.cost_j, 5 * (0.5 * 2300 + 0.5 * 2500), 1e-9);
  EXPECT_EQ(fixed.recurrences, 2 * 2 * 2);
}

// From half of its recurrences on batch size 32 takes the epochs of 16, and 16 is never trained.
TEST(Replay, KnowsWhatChangesHalfWay) {
  TraceJob job = small_job();
  job.sizes[0].later_runs = {std::nullopt};
  job.sizes[1].later_runs = {2};
  const FixedCosts fixed = fixed_costs(job, {.recurrences = 7});
  EXPECT_EQ(fixed.late.best, (SizeAndLimit{32, 150}));
  EXPECT_NEAR(fixed.early.oracle.cost_j, 10450, 1e-9);
  EXPECT_NEAR(fixed.late.oracle.cost_j, 2 * 2090, 1e-9);
  EXPECT_NEAR(fixed.oracle.cost_j, (3 * 10450 + 4 * 2 * 2090) / 7.0, 1e-9);
  const ReplayRun run = (*find_replay_policy("default"))->run(job, {.recurrences = 7}, 1);
  EXPECT_NEAR(run.recurrences[2].cost_j, fixed.early.by_default.cost_j, 1e-9);
  EXPECT_NEAR(run.recurrences[3].cost_j, fixed.late.by_default.cost_j, 1e-9);
  const auto figures = replay_figures(job, {.recurrences = 7}, std::vector{run});
  EXPECT_NEAR(figures.late_regret,
              4 * (fixed.late.by_default.cost_j / fixed.late.oracle.cost_j - 1), 1e-9);
}

TEST(Trace, ChangesHalfWay) {
  TraceJob job = small_job(), other = small_job();
  other.sizes.erase(other.sizes.begin());
  other.sizes[0].runs = {3};
  change_target(job, other);
  EXPECT_EQ(job.sizes[0].later_runs, (std::vector<std::optional<int>>{std::nullopt}));
  EXPECT_EQ(job.sizes[1].later_runs, std::vector<std::optional<int>>{3});
  move_sizes(job, 1);
  EXPECT_EQ(job.sizes[0].later_runs, job.sizes[1].runs);
  EXPECT_EQ(job.sizes[1].later_runs, job.sizes[1].runs);
}

// Noise is in what is read, and in the limits that are chosen by it: a batch size with one limit is
// paid as without.
RC_GTEST_PROP(Replay, NoiseIsNotPaid, ()) {
  TraceJob job = small_job();
  for (TraceSize& size : job.sizes) size.points.resize(1);
  job.sizes.resize(1);
  job.sizes[0].runs = {4, 5};
  job.default_size = job.sizes[0].batch_size;
  const auto& policy = *rc::gen::elementOf(replay_policies());
  const auto seed = *rc::gen::inRange<std::uint64_t>(1, 1000);
  const auto with = policy.run(job, {.beta = 100, .recurrences = 9, .noise = 0.1}, seed);
  const auto without = policy.run(job, {.beta = 100, .recurrences = 9}, seed);
  for (std::size_t i = 0; i < with.recurrences.size(); ++i)
    RC_ASSERT(std::abs(with.recurrences[i].cost_j / without.recurrences[i].cost_j - 1) < 1e-9);
}

// The first run of Zeus's policy at a batch size spends its first epoch evenly over the limits.
TEST(Replay, ChargesTheFirstEpochAsPublished) {
  const auto run = (*find_replay_policy("zeus"))->run(small_job(), {}, 1);
  const double low = 0.5 * 1430 + 0.5 * 250 * 11, high = 0.5 * 2300 + 0.5 * 2500;
  EXPECT_NEAR(run.recurrences[0].cost_j, (low + high) / 2 + 4 * low, 1e-9);
  EXPECT_NEAR(run.recurrences[0].time_s, 10.5 + 4 * 11, 1e-9);
}

RC_GTEST_PROP(Replay, TheSameSeedGivesTheSameRun, ()) {
  const TraceJob job = small_job();
  const auto& policy = *rc::gen::elementOf(replay_policies());
  const auto seed = *rc::gen::inRange<std::uint64_t>(1, 1000);
  const auto a = policy.run(job, {}, seed), b = policy.run(job, {}, seed);
  RC_ASSERT(a.recurrences.size() == static_cast<std::size_t>(fixed_costs(job, {}).recurrences));
  for (std::size_t i = 0; i < a.recurrences.size(); ++i)
    RC_ASSERT(a.recurrences[i].cost_j == b.recurrences[i].cost_j);
}

// No policy beats hindsight in expectation; over 400 seeds the standard error is far below 5 %.
TEST(Replay, NothingBeatsTheOracleOnAverage) {
  const TraceJob job = small_job();
  const FixedCosts fixed = fixed_costs(job, {});
  for (const ReplayPolicy& policy : replay_policies()) {
    std::vector<ReplayRun> runs;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) runs.push_back(policy.run(job, {}, seed));
    const auto figures = replay_figures(job, {}, runs);
    EXPECT_GT(figures.mean.cost_j, 0.95 * fixed.oracle.cost_j * fixed.recurrences) << policy.name;
  }
}

TEST(SingleRun, IsNeverDearerThanItsProfile) {
  const SingleRun tuned = single_run(small_job(), {}, {}, false);
  const SingleRun best = single_run(small_job(), {}, {}, true);
  EXPECT_EQ(best.limit_w, 150);
  EXPECT_EQ(tuned.limit_w, 150);
  EXPECT_EQ(tuned.readings, 2);
  EXPECT_LT(tuned.cost_saving, best.cost_saving);
}

// --- the published traces, where they are

class Published : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("DERATE_DATA");
    const auto root = std::filesystem::path(__FILE__).parent_path() / "../..";
    folder_ = (data ? std::filesystem::path(data) : root / "../shared/data") / "zeus";
    if (!std::filesystem::exists(folder_ / "summary_train.csv"))
      GTEST_SKIP() << "skipped: no tables at " << folder_.string();
    const std::string name = (folder_ / "summary_train.csv").string();
    train_ = *parse_train_trace(*read_file(name), name);
  }
  struct Pair {
    std::string gpu;
    TraceJob job;
  };
  std::vector<Pair> pairs() const {
    std::vector<Pair> out;
    for (const char* gpu : {"v100", "a40"}) {
      const std::string name = (folder_ / ("summary_power_" + std::string(gpu) + ".csv")).string();
      const auto power = *parse_power_trace(*read_file(name), name);
      for (const TraceTask& task : trace_tasks())
        out.push_back({gpu, *make_trace_job(task, train_, power)});
    }
    return out;
  }
  static std::vector<ReplayRun> runs(const TraceJob& job, const char* policy, int seeds) {
    std::vector<ReplayRun> out;
    for (int seed = 1; seed <= seeds; ++seed)
      out.push_back((*find_replay_policy(policy))->run(job, {}, static_cast<std::uint64_t>(seed)));
    return out;
  }

  std::filesystem::path folder_;
  std::vector<TrainRow> train_;
};

// Against what Zeus itself reached: cumulative cost within 1 %, mean regret within three standard
// errors of the difference.
TEST_F(Published, ZeusIsReproduced) {
  const std::string name = (folder_ / "reference_results.csv").string();
  const std::string text = *read_file(name);
  const auto rows = split(text, '\n');
  const auto head = split(rows[0], ',');
  const auto number = [&](std::string_view row, std::string_view column) {
    const auto at = std::find(head.begin(), head.end(), column) - head.begin();
    return *parse_double(split(row, ',')[static_cast<std::size_t>(at)]);
  };
  // The reference's rows, in its own order of workloads.
  const std::vector<std::string> order[] = {
      {"imagenet", "cifar100", "squad", "movielens", "librispeech", "sentiment140"},
      {"imagenet", "cifar100", "librispeech", "squad", "sentiment140", "movielens"}};
  for (const Pair& pair : pairs()) {
    const auto& names = order[pair.gpu == "v100" ? 0 : 1];
    const std::string task = pair.job.task.name;
    const auto at =
        std::find_if(names.begin(), names.end(),
                     [&](const std::string& each) { return task.ends_with("/" + each); }) -
        names.begin();
    const std::string_view row =
        rows[1 + static_cast<std::size_t>(at) + (pair.gpu == "v100" ? 0 : 6)];
    const auto figures = replay_figures(pair.job, {}, runs(pair.job, "zeus", 100));
    EXPECT_NEAR(figures.mean.cost_j / number(row, "zeus_cum_cost"), 1, 0.01) << row.substr(0, 40);
    const double theirs_sd = number(row, "regret_zeus_sd");
    const double error =
        std::sqrt((figures.regret_sd * figures.regret_sd + theirs_sd * theirs_sd) / 100);
    EXPECT_NEAR(figures.regret, number(row, "regret_zeus_mean"), 3 * error) << row.substr(0, 40);
  }
}

// Looser than what docs/tune-policies.md shows: a few seeds tell a change for the worse.
TEST_F(Published, TuneIsCheaperThanZeus) {
  double ours = 0, theirs = 0;
  for (const Pair& pair : pairs()) {
    const auto tune = replay_figures(pair.job, {}, runs(pair.job, "tune", 20));
    ours += tune.regret / 12;
    theirs += replay_figures(pair.job, {}, runs(pair.job, "zeus", 20)).regret / 12;
    EXPECT_TRUE(tune.break_even) << pair.gpu << " " << pair.job.task.name;
  }
  EXPECT_LT(ours, 0.65 * theirs);
}

TEST_F(Published, OneRunSavesNearlyWhatHindsightWould) {
  double saved = 0, hindsight = 0;
  for (const Pair& pair : pairs()) {
    const SingleRun run = single_run(pair.job, {}, {}, false);
    saved += run.energy_saving;
    hindsight += single_run(pair.job, {}, {}, true).energy_saving;
    EXPECT_GT(run.energy_saving, -0.005) << pair.gpu << " " << pair.job.task.name;
    EXPECT_GT(run.cost_saving, -0.005) << pair.gpu << " " << pair.job.task.name;
  }
  EXPECT_GT(saved, 0.85 * hindsight);
}

}  // namespace
}  // namespace derate
