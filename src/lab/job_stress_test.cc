// The axes of jobs, from a file's text to what the simulated GPU does and a policy sees of it.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "base/check.h"
#include "base/test_folder.h"
#include "lab/hindsight.h"
#include "lab/plan.h"
#include "lab/worst_stretch.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr double kPerSecond = 10000;  // of the recording, at the highest clock

struct Seen {
  Instant time{};
  WorkStatus work;
};

// Holds one clock and writes down what it sees.
struct Holder final : Policy {
  Holder(Megahertz held, std::vector<Seen>& to) : clock(held), seen(to) {}
  Decision decide(const Estimate& estimate, const Envelope&) override {
    seen.push_back({estimate.time, estimate.work});
    return Decision::set(clock, {"listening", {}});
  }
  Megahertz clock;
  std::vector<Seen>& seen;
};

struct Ran {
  SessionRecord record;
  std::vector<Seen> seen;

  double seconds_of(std::size_t job) const { return seconds(record.jobs.at(job).time); }
  // Launches a second that the policy was shown between two times of a session that begins with its
  // only job.
  double rate(double from_s, double to_s) const {
    const Progress *first = nullptr, *last = nullptr;
    for (const Seen& each : seen) {
      const double at = seconds(each.time.time_since_epoch());
      if (!each.work.progress || at < from_s || at > to_s) continue;
      if (first == nullptr) first = &*each.work.progress;
      last = &*each.work.progress;
    }
    CHECK(first != nullptr && last->time > first->time && last->run == first->run);
    return (last->done - first->done) / seconds(last->time - first->time);
  }
};

class JobStress : public testing::Test {
 protected:
  JobStress() {
    std::ofstream file(folder_.file("even.csv"));
    file << "time_s,steps,phase,a,b\n";
    for (int i = 0; i <= 60; ++i)
      file << i / 10.0 << ',' << i << ",," << (i > 0 ? "700,300" : "0,0") << '\n';
  }

  Result<Plan> plan(const std::string& workloads, const std::string& rest) const {
    const auto e = parse_experiment(
        "[experiment]\nrepetitions = 1\n[gpus]\nchips = [\"V100-SXM2\"]\n[[policy]]\n"
        "name = \"geepafs\"\n[workloads]\n" +
            workloads + "\n" + rest,
        folder_.file("x.toml"));
    CHECK(e.ok());
    return make_plan(*e, "/nowhere");
  }
  Ran run(const std::string& workloads, const std::string& rest, double mhz = 1530) const {
    const auto made = plan(workloads, rest);
    CHECK(made.ok());
    SessionSpec spec = session_spec(*made, 0);
    Ran out;
    PolicyInfo info = **find_policy("max-freq");
    std::vector<Seen> seen;
    static std::vector<Seen>* to;
    static Megahertz clock;
    to = &seen;
    clock = Megahertz(mhz);
    info.create = [](const PolicySetup&) -> Result<std::unique_ptr<Policy>> {
      return std::make_unique<Holder>(clock, *to);
    };
    spec.policy = {&info, *policy_params(info, {}), "listener"};
    auto record = run_session(spec);
    CHECK(record.ok());
    out.record = *std::move(record);
    out.seen = std::move(seen);
    return out;
  }
  // One job of GeMM that launches, from the session's first instant.
  Ran launching(const std::string& stress, double mhz = 1530) const {
    return run("fitted = [\"GeMM\"]\nlaunches = [\"even.csv\"]",
               "[jobs]\nwork_s = 40\nwarm_up_s = 0\n[stress]\ngap_s = 0\n" + stress, mhz);
  }

  const Folder folder_;
};

TEST_F(JobStress, WorkPerLaunchDriftsAndTheWorkDoesNot) {
  const Ran plain = launching(""), drifts = launching("launch_drift = 0.5\nlaunch_drift_s = 20\n");
  EXPECT_NEAR(plain.rate(5, 35), kPerSecond, 20);
  EXPECT_NEAR(drifts.rate(9, 11), kPerSecond / 1.25, 50);
  EXPECT_NEAR(drifts.rate(25, 35), kPerSecond / 1.5, 20);
  EXPECT_EQ(drifts.record.jobs[0].time, plain.record.jobs[0].time);
  EXPECT_EQ(drifts.record.jobs[0].energy, plain.record.jobs[0].energy);
  // Over the job's length by default; and at another clock at the same places of the work.
  EXPECT_NEAR(launching("launch_drift = 0.5\n").rate(19, 21), kPerSecond / 1.25, 50);
  const Ran low = launching("launch_drift = 0.5\nlaunch_drift_s = 20\n", 1110);
  const double slower = low.seconds_of(0) / 40;
  EXPECT_GT(slower, 1.2);
  EXPECT_NEAR(low.rate(9 * slower, 11 * slower), kPerSecond / 1.25 / slower, 80);
}

// Over all but a tenth of a half wave at each end, the mean of 1 / (1 + 0.1 sin) is 0.930 or 1.082
// (integrated to the third order).
TEST_F(JobStress, WorkPerLaunchGoesUpAndDown) {
  const Ran waves = launching("launch_wave = 0.1\nlaunch_wave_s = 20\n");
  for (const double round : {0.0, 20.0}) {
    EXPECT_NEAR(waves.rate(round + 1, round + 9), 0.930 * kPerSecond, 60);
    EXPECT_NEAR(waves.rate(round + 11, round + 19), 1.082 * kPerSecond, 60);
  }
}

TEST_F(JobStress, WorkPerLaunchIsDrawnEveryTwoSeconds) {
  const Ran random = launching("launch_random = 0.3\n");
  double sum = 0, squares = 0, least = 9, most = 0;
  const int count = 19;
  for (int i = 0; i < count; ++i) {
    const double begin = 2 * i + 0.35, first = random.rate(begin, begin + 0.8),
                 second = random.rate(begin + 0.6, begin + 1.6);
    EXPECT_NEAR(first, second, 0.03 * first) << i;  // one amount of work for two seconds
    const double work = kPerSecond / second;
    sum += work, squares += work * work;
    least = std::min(least, work), most = std::max(most, work);
  }
  const double mean = sum / count, sd = std::sqrt(squares / count - mean * mean);
  EXPECT_NEAR(mean, 1, 0.12);  // three of 0.173 / sqrt(19)
  EXPECT_NEAR(sd, 0.3 / std::sqrt(3), 0.06);
  EXPECT_GE(least, 0.69);
  EXPECT_LE(most, 1.31);
}

TEST_F(JobStress, BatchesAreSortedByLengthInEachEpoch) {
  const Ran sorted = run("fitted = [\"GeMM\"]\nlaunches = [\"even.csv\"]",
                         "[jobs]\nwork_s = 75\nwarm_up_s = 0\n[stress]\ngap_s = 0\n"
                         "launch_sorted = 0.3\n");
  EXPECT_NEAR(sorted.rate(29, 31), kPerSecond, 60);
  EXPECT_NEAR(sorted.rate(57, 59), kPerSecond / 1.28, 60);
  EXPECT_NEAR(sorted.rate(61, 63), kPerSecond / 0.72, 100);
  EXPECT_NEAR(launching("launch_sorted = -0.3\n").rate(1, 3), kPerSecond / 1.28, 60);
  EXPECT_NEAR(launching("launch_wave = -0.1\nlaunch_wave_s = 20\n").rate(1, 9), 1.082 * kPerSecond,
              60);
}

// A gap is exact, to the simulator's step; each job is another process, whose launches are counted
// from zero, and whose run the policy has not seen.
TEST_F(JobStress, JobsFollowEachOtherAtOnce) {
  for (const double gap : {0.0, 1.0, 2.0}) {
    const Ran ran = run("fitted = [\"GeMM\"]\nlaunches = [\"even.csv\"]",
                        "[jobs]\nwork_s = 7.33\nwarm_up_s = 0\nin_a_row = 4\n[stress]\ngap_s = " +
                            std::to_string(gap) + "\n");
    double busy = 0;
    for (const JobRecord& job : ran.record.jobs) busy += seconds(job.time);
    EXPECT_NEAR(seconds(ran.record.simulated), busy + 4 * gap, 4 * 0.011);
    std::set<std::uint64_t> runs;
    int silent = 0;
    double most = 0;
    for (const Seen& each : ran.seen) {
      silent += each.work.name.empty() ? 1 : 0;
      if (!each.work.progress) continue;
      runs.insert(each.work.progress->run);
      most = std::max(most, each.work.progress->done);
    }
    EXPECT_EQ(runs.size(), 4u);
    EXPECT_LE(most, 7.4 * kPerSecond);
    EXPECT_NEAR(silent * 0.2, 4 * gap, 4 * 0.2);
  }
}

TEST_F(JobStress, ProgramsTakeTurns) {
  const auto made = plan("fitted = [\"GeMM\", \"FFT\", \"BWtest\", \"RNN\"]",
                         "[jobs]\nin_a_row = 3\nin_turn = 3\n");
  ASSERT_TRUE(made.ok());
  const SessionSpec spec = session_spec(*made, 0);
  ASSERT_EQ(spec.jobs.size(), 12u);
  const auto name = [&](std::size_t i) { return spec.jobs[i].workload->name; };
  for (std::size_t i = 3; i < 9; ++i) EXPECT_EQ(name(i), name(i - 3));
  EXPECT_EQ((std::set{name(0), name(1), name(2), name(9)}).size(), 4u);
  EXPECT_EQ(name(9), name(11));
}

// The work of both at the highest clock is done in the same time as without a change, and a
// constant clock loses what hindsight says of it.
TEST_F(JobStress, WorkTurnsSlowlyIntoOtherWork) {
  const std::string workloads = "change_pairs = [\"GeMM\", \"BWtest\"]";
  const std::string rest =
      "[jobs]\nwork_s = 40\nwarm_up_s = 0\n[stress]\ngap_s = 0\nchange_s = 20\n";
  const auto made = plan(workloads, rest);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->stages[0].apps, (std::vector<std::string>{"GeMM->BWtest", "BWtest->GeMM"}));
  const Simulation& stage = *made->stages[0].simulation;
  const Ran full = run(workloads, rest), low = run(workloads, rest, 1110);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(full.seconds_of(i), 40, 0.05);
    const std::string& app = low.record.jobs[i].app;
    const Workload& workload = stage.workloads[app == "GeMM->BWtest" ? 0 : 1];
    for (const FixedClock& known :
         fixed_clocks(workload, {}, stage.circumstances.chip, stage.envelope))
      if (known.clock == Megahertz(1110)) {
        EXPECT_NEAR(1 - full.seconds_of(i) / low.seconds_of(i), known.outcome.loss, 0.004) << app;
        EXPECT_GT(known.outcome.loss, 0.05);
      }
  }
}

// Ten seconds of the work alone that loses more are the worst ten of the job.
TEST_F(JobStress, TheWorstStretchIsThatOfTheWorkThatLosesMost) {
  const std::string workloads = "change_pairs = [\"GeMM\", \"BWtest\"]";
  const std::string rest =
      "[jobs]\nwork_s = 40\nwarm_up_s = 0\n[stress]\ngap_s = 0\nchange_s = 16\n";
  const auto made = plan(workloads, rest);
  ASSERT_TRUE(made.ok());
  const Simulation& stage = *made->stages[0].simulation;
  const SimChip& chip = stage.circumstances.chip;
  const auto at = static_cast<std::size_t>((1110 - 135) / 7.5);
  ASSERT_EQ(chip.sm_clocks[at], Megahertz(1110));
  const Ran full = run(workloads, rest), low = run(workloads, rest, 1110);
  for (std::size_t i = 0; i < 2; ++i) {
    const Workload& workload = stage.workloads[low.record.jobs[i].app == "GeMM->BWtest" ? 0 : 1];
    const double gemm = stage.workloads[0].performance(at);
    const auto lost = worst_stretch_loss(low.record.jobs[i], workload, chip, 10s);
    ASSERT_TRUE(lost);
    EXPECT_NEAR(*lost, 1 - gemm, 0.005);
    EXPECT_NEAR(*worst_stretch_loss(full.record.jobs[i], workload, chip, 10s), 0, 0.005);
    EXPECT_FALSE(worst_stretch_loss(low.record.jobs[i], workload, chip, 60s));
  }
}

// Always, and in the first half of each ten seconds of a job; the baseline, too.
TEST_F(JobStress, ThePowerLimitHoldsTheClock) {
  const std::string gemm = "fitted = [\"GeMM\"]";
  const std::string jobs = "[jobs]\nwork_s = 40\nwarm_up_s = 5\n[stress]\ngap_s = 3\n";
  const Ran free = run(gemm, jobs), always = run(gemm, jobs + "power_limit_w = 200\n"),
            in_turns = run(gemm, jobs + "power_limit_w = 200\npower_limit_every_s = 10\n");
  const auto mean = [](const Ran& ran, double begin, double end) {
    double watts = 0, count = 0;
    for (const Tick& tick : ran.record.jobs[0].ticks)
      if (const double at = std::fmod(tick.time_s, 10); at >= begin && at < end)
        watts += tick.power_w, ++count;
    return watts / count;
  };
  EXPECT_GT(mean(free, 1, 10), 230);
  EXPECT_NEAR(mean(always, 1, 10), 200, 2);
  EXPECT_NEAR(mean(in_turns, 1, 5), 200, 2);
  EXPECT_NEAR(mean(in_turns, 5.5, 10), mean(free, 5.5, 10), 4);
  EXPECT_GT(always.seconds_of(0), free.seconds_of(0) + 1);
  EXPECT_GT(in_turns.seconds_of(0), free.seconds_of(0) + 0.5);
  EXPECT_LT(in_turns.seconds_of(0), always.seconds_of(0) - 0.5);
  const auto refused = plan(gemm, "[stress]\npower_limit_w = [200, 400]\n");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("400 W: wanted one of 150 to 300 W"), std::string::npos)
      << refused.error().message;
}

// Against the same under the highest clock and the same limit.
TEST_F(JobStress, HindsightKnowsThePowerLimit) {
  const std::string gemm = "fitted = [\"GeMM\"]";
  const std::string jobs = "[jobs]\nwork_s = 60\nwarm_up_s = 300\n[stress]\ngap_s = 0\n";
  for (const std::string limit :
       {"power_limit_w = 180\n", "power_limit_w = 180\npower_limit_every_s = 6\n"}) {
    const Ran full = run(gemm, jobs + limit), low = run(gemm, jobs + limit, 1110);
    const auto made = plan(gemm, jobs + limit);
    ASSERT_TRUE(made.ok());
    const Simulation& stage = *made->stages[0].simulation;
    for (const FixedClock& known : fixed_clocks(stage.workloads[0], {}, stage.circumstances.chip,
                                                stage.envelope, stage.circumstances.jobs.power_cap))
      if (known.clock == Megahertz(1110)) {
        EXPECT_NEAR(1 - full.seconds_of(0) / low.seconds_of(0), known.outcome.loss, 0.006) << limit;
        EXPECT_NEAR(full.record.jobs[0].energy / low.record.jobs[0].energy - 1, known.outcome.gain,
                    0.02)
            << limit;
      }
  }
}

}  // namespace
}  // namespace derate
