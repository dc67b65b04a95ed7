#include "govern/group/step_unit.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "govern/group/group_rule.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;
using Kind = Decision::Kind;

const std::vector<Megahertz> kClocks{Megahertz(900), Megahertz(1200), Megahertz(1500)};

StepCandidate candidate(std::size_t gpu, std::uint64_t group, const char* key = "assure") {
  return {gpu, group, key, kClocks, {}, false};
}

// Says what it is told to, and keeps what it was shown.
struct ToldPolicy final : Policy {
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    seen = estimate;
    highest = envelope.highest();
    return says;
  }
  void begin_anew() override { ++begun; }
  Decision says = Decision::hold({"as before", {}});
  Estimate seen;
  Megahertz highest{};
  int begun = 0;
};

// Ticks of GPUs that show so much.
class Unit {
 public:
  explicit Unit(std::size_t gpus) : estimates(gpus), envelopes(gpus, envelope(1500)) {
    unit = StepUnit{.set = {1, {}}};
    for (std::size_t i = 0; i < gpus; ++i) {
      unit.set.gpus.push_back(i);
      estimates[i].freshness = Freshness::fresh;
      estimates[i].gpu_utilisation = Fraction(0.9);
      estimates[i].sm_clock = Megahertz(1500);
      estimates[i].power = Watts(100);
    }
  }
  static Envelope envelope(double highest) {
    return *Envelope::create(kClocks, Megahertz(900), Megahertz(highest));
  }
  const Decision& tick() {
    now += 200ms;
    std::vector<StepReading> readings;
    for (std::size_t i = 0; i < estimates.size(); ++i) {
      estimates[i].time = now;
      readings.push_back({i, &estimates[i], &envelopes[i]});
    }
    return decide_in_step(unit, readings, policy);
  }
  void run(int ticks) {
    for (int i = 0; i < ticks; ++i) tick();
  }
  // Each of them tells how far it is, by what it launches.
  void count_work() {
    for (Estimate& each : estimates)
      each.work.progress = Progress{
          .source = ProgressSource::launches, .run = 1, .done = 5, .rate_uncertainty = 0.01};
  }

  Instant now{};
  StepUnit unit;
  ToldPolicy policy;
  std::vector<Estimate> estimates;
  std::vector<Envelope> envelopes;
};

TEST(StepSets, AreOfOneGroupAndOnePolicy) {
  const std::vector<StepCandidate> all{candidate(0, 1), candidate(1, 1),
                                       candidate(2, 2), candidate(3, 1, "assure delta=0.05"),
                                       candidate(4, 1), candidate(5, 2, "max-freq")};
  EXPECT_EQ(step_sets(all), (std::vector<StepSet>{{1, {0, 1, 4}}}));
}

// Whatever changes, each GPU is in one unit at most, each policy is where it decides, and those
// that were told nothing begin anew when they decide again.
RC_GTEST_PROP(StepUnits, EachGpuHasTheRightPolicy, (std::vector<std::vector<int>> rounds)) {
  constexpr std::size_t kGpus = 6;
  std::vector<StepUnit> units;
  std::vector<std::size_t> policy_at(kGpus);  // by number
  std::vector<bool> decided(kGpus, true);     // at the last round, by policy
  for (std::size_t i = 0; i < kGpus; ++i) policy_at[i] = i;
  for (const std::vector<int>& groups : rounds) {
    std::vector<StepCandidate> candidates;
    for (std::size_t i = 0; i < std::min(kGpus, groups.size()); ++i)
      if (const int group = std::abs(groups[i] % 3); group > 0)
        candidates.push_back(candidate(i, static_cast<std::uint64_t>(group)));
    std::map<std::uint64_t, std::size_t> deciding;  // before: by group, the policy
    for (const StepUnit& unit : units) deciding[unit.set.group] = policy_at[unit.leader];
    std::map<std::uint64_t, StepSet> before;
    for (const StepUnit& unit : units) before[unit.set.group] = unit.set;
    const auto changes = regroup(units, step_sets(candidates));
    for (const auto& [from, to] : changes.swapped) std::swap(policy_at[from], policy_at[to]);
    std::vector<bool> anew(kGpus);
    for (const std::size_t at : changes.begin_anew) anew[policy_at[at]] = true;
    std::vector<int> units_of(kGpus);
    std::vector<bool> decides(kGpus, true);
    for (const StepUnit& unit : units) {
      RC_ASSERT(unit.set.gpus.size() >= 2u);
      RC_ASSERT(unit.has(unit.leader) && unit.has(unit.pace));
      for (const std::size_t gpu : unit.set.gpus) {
        ++units_of[gpu];
        decides[policy_at[gpu]] = gpu == unit.leader;
      }
      const auto was = before.find(unit.set.group);
      const bool goes_on =
          was != before.end() &&
          std::any_of(unit.set.gpus.begin(), unit.set.gpus.end(), [&](auto gpu) {
            return std::count(was->second.gpus.begin(), was->second.gpus.end(), gpu) > 0;
          });
      if (goes_on) RC_ASSERT(policy_at[unit.leader] == deciding[unit.set.group]);
    }
    for (std::size_t i = 0; i < kGpus; ++i) {
      RC_ASSERT(units_of[i] <= 1);
      if (decides[i] && !decided[i]) RC_ASSERT(anew[i]);
    }
    decided = decides;
  }
}

// A member that missed a decision has it from the next tick on.
TEST(StepUnit, AHoldRepeatsTheLastDecision) {
  Unit gpus(2);
  EXPECT_EQ(gpus.tick().kind, Kind::hold);
  gpus.policy.says = Decision::set(1200_MHz, {"set", {}});
  gpus.policy.says.probing = true;
  gpus.tick();
  gpus.policy.says = Decision::hold({"held", {}});
  EXPECT_EQ(gpus.tick().kind, Kind::set);
  EXPECT_EQ(gpus.unit.decision.clock, 1200_MHz);
  EXPECT_TRUE(gpus.unit.decision.probing);
  EXPECT_EQ(describe(gpus.unit.decision.reason), "held");
  for (Estimate& each : gpus.estimates) each.idle = true;
  EXPECT_EQ(gpus.tick().kind, Kind::hold);  // what wakes up is told anew
}

TEST(StepUnit, TheOneThatWaitsLeastIsDecidedBy) {
  Unit gpus(8);
  for (std::size_t i = 0; i < 7; ++i) gpus.estimates[i].gpu_utilisation = Fraction(0.85);
  gpus.run(50);
  EXPECT_EQ(gpus.unit.pace, 7u);
  EXPECT_EQ(gpus.policy.seen.gpu_utilisation, Fraction(0.9));
  EXPECT_EQ(gpus.policy.begun, 0);  // known before there was anything to compare with
  gpus.estimates[2].gpu_utilisation = Fraction(0.99);
  gpus.run(100);
  EXPECT_EQ(gpus.unit.pace, 2u);
  EXPECT_EQ(gpus.policy.begun, 1);
}

// Whose count is read makes no difference to what is done, but another's is in another unit.
TEST(StepUnit, ACountOfWorkIsNotLeftForALittle) {
  Unit gpus(2);
  gpus.count_work();
  gpus.run(20);
  const std::size_t pace = gpus.unit.pace, other = 1 - pace;
  gpus.estimates[pace].gpu_utilisation = Fraction(0.875);  // of 0.9: 2.8 % less
  gpus.run(200);
  EXPECT_EQ(gpus.unit.pace, pace);
  EXPECT_EQ(gpus.policy.begun, 0);
  for (Estimate& each : gpus.estimates) each.work.progress.reset();
  gpus.run(1);
  EXPECT_EQ(gpus.unit.pace, other);
  EXPECT_EQ(gpus.policy.begun, 1);
}

TEST(StepUnit, ACountOfWorkIsLeftWhereAnotherIsSlower) {
  Unit gpus(2);
  gpus.count_work();
  gpus.run(20);
  const std::size_t pace = gpus.unit.pace;
  gpus.estimates[pace].gpu_utilisation = Fraction(0.8);
  gpus.run(200);
  EXPECT_EQ(gpus.unit.pace, 1 - pace);
}

TEST(StepUnit, WhereWaitingLooksLikeWorkItIsTheLowestClock) {
  Unit gpus(4);
  gpus.estimates[2].sm_clock = Megahertz(1400);
  gpus.run(50);
  EXPECT_EQ(gpus.unit.pace, 2u);
}

TEST(StepUnit, ThePromiseIsTheStrictest) {
  Unit gpus(3);
  gpus.estimates[0].work.promises = {throughput(Fraction(0.1))};
  gpus.estimates[1].work.promises = {throughput(Fraction(0.2), "rule", true)};
  gpus.estimates[2].work.promises = {throughput(Fraction(0.05))};
  gpus.tick();
  const auto promise = throughput_promise(gpus.policy.seen.work);
  EXPECT_EQ(max_loss(*promise), Fraction(0.05));
  EXPECT_TRUE(promise->every_phase);
}

TEST(StepUnit, NoneIsFasterThanOneThatIsHot) {
  Unit gpus(3);
  gpus.envelopes[1] = Unit::envelope(1200);
  gpus.tick();
  EXPECT_EQ(gpus.policy.highest, 1200_MHz);
}

// A decision that is repeated stays within bounds that have come since.
TEST(StepUnit, NoneIsFasterThanOneThatHasBecomeHot) {
  Unit gpus(2);
  gpus.policy.says = Decision::set(1500_MHz, {"set", {}});
  gpus.tick();
  gpus.policy.says = Decision::hold({"held", {}});
  gpus.envelopes[1] = Unit::envelope(1200);
  EXPECT_EQ(gpus.tick().clock, 1200_MHz);
  gpus.envelopes[1] = Unit::envelope(1500);
  EXPECT_EQ(gpus.tick().clock, 1500_MHz);
}

TEST(StepUnit, WithoutAFreshReadingItHolds) {
  Unit gpus(2);
  gpus.policy.says = Decision::set(1200_MHz, {"set", {}});
  gpus.estimates[0].freshness = Freshness::stale;
  EXPECT_EQ(gpus.tick().kind, Kind::set);
  EXPECT_EQ(gpus.unit.pace, 1u);
  gpus.estimates[1].freshness = Freshness::expired;
  EXPECT_EQ(gpus.tick().kind, Kind::hold);
}

// The policy's counter grows as one GPU's would, whichever sets the pace.
TEST(StepUnit, OneEnergyCounter) {
  Unit gpus(2);
  std::vector<double> counters{5e6, 1e3};
  std::optional<Joules> before;
  for (int i = 0; i < 200; ++i) {
    if (i == 60) gpus.estimates[1].gpu_utilisation = Fraction(1);
    for (std::size_t gpu = 0; gpu < 2; ++gpu) {
      counters[gpu] += 20;  // 100 W for 0.2 s
      gpus.estimates[gpu].energy = Joules(counters[gpu]);
    }
    gpus.tick();
    const Joules now = *gpus.policy.seen.energy;
    EXPECT_NEAR((now - before.value_or(now - Joules(20))).value(), 20, 1e-6) << i;
    before = now;
  }
  EXPECT_EQ(gpus.unit.pace, 1u);
}

// By what each has drawn: what is used adds up to what was measured.
TEST(StepUnit, EachHasItsPartOfTheSaving) {
  Unit gpus(2);
  gpus.estimates[1].power = Watts(50);
  gpus.run(10);
  const Saving all{.energy = Joules(10), .energy_at_highest = Joules(20), .time = 1s};
  const std::size_t other = 1 - gpus.unit.pace;
  EXPECT_EQ(member_saving(gpus.unit, gpus.unit.pace, all), all);
  const Saving its = member_saving(gpus.unit, other, all);
  EXPECT_NEAR(its.energy.value(), other == 1 ? 5 : 20, 1e-9);
  EXPECT_EQ(its.time, 1s);
}

// One that comes later has drawn nothing before: its part is of what is drawn from then on.
TEST(StepUnit, AMemberThatComesLaterHasItsPartFromThenOn) {
  Unit gpus(2);
  gpus.run(1000);
  gpus.estimates.push_back(gpus.estimates.front());
  gpus.envelopes.push_back(gpus.envelopes.front());
  std::vector<StepUnit> units{gpus.unit};
  regroup(units, {{1, {0, 1, 2}}});
  gpus.unit = units.front();
  gpus.run(10);
  const Saving all{.energy = Joules(10), .energy_at_highest = Joules(20), .time = 1s};
  for (std::size_t gpu = 0; gpu < 3; ++gpu)
    EXPECT_NEAR(member_saving(gpus.unit, gpu, all).energy.value(), 10, 1e-9) << gpu;
}

TEST(PolicyKey, NamesPolicyAndParameters) {
  const PolicyInfo& info = **find_policy("assure");
  const auto p90 = *policy_params(info, {}),
             p95 = *policy_params(info, std::vector<std::string>{"delta=0.05"});
  EXPECT_EQ(policy_key(info, p90), policy_key(info, p90));
  EXPECT_NE(policy_key(info, p90), policy_key(info, p95));
  EXPECT_NE(policy_key(info, {}), policy_key(**find_policy("max-freq"), {}));
}

}  // namespace
}  // namespace derate
