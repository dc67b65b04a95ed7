// What a new origin of requests takes: a row. Here jobs of a scheduler, above commands and below
// runs.
#include <gtest/gtest.h>

#include "device/sim/sim_device.h"
#include "govern/fleet/fleet.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr OriginRow kJobs{"scheduler", "a job of the scheduler", 25, OriginRow::Asker::users};
constexpr RequestOrigin kJob{kJobs};

class AnotherOrigin : public testing::Test {
 protected:
  AnotherOrigin() {
    fleet.begin_opening();
    EXPECT_TRUE(fleet.poll_opening().ok());
  }
  static Assignment by(RequestOrigin origin, const char* who, const char* policy,
                       std::optional<Instant> until = {}) {
    const PolicyInfo& info = **find_policy(policy);
    return {.origin = origin,
            .who = who,
            .until = until,
            .policy = PolicyAssignment{{&info, *policy_params(info, {})}, false}};
  }
  OpeningPoll opening() {
    return [this]() -> std::optional<Result<OpenGpus>> {
      OpenGpus out;
      out.gpus.emplace_back();
      auto device = std::make_unique<SimDevice>(sim, clock, 0);
      out.gpus.back().control = device.get();
      out.gpus.back().source = std::move(device);
      return out;
    };
  }
  const Assignment& now() const { return *fleet.gpus()[0].assigned; }

  FakeClock clock;
  SimGpu sim{**find_sim_chip("v100"), SimOptions{}};
  Fleet fleet{{.open = [this](const std::string&) { return opening(); }}, {}, clock};
};

TEST_F(AnotherOrigin, HasItsPlaceBetweenTheOthers) {
  EXPECT_TRUE(fleet.assign(0, by(origins::command, "root", "max-freq")).ok());
  EXPECT_EQ(*fleet.assign(0, by(kJob, "job 7", "assure")), "GPU 0 is governed by assure");
  EXPECT_EQ(now().who, "job 7");
  EXPECT_EQ(now().why, "a job of the scheduler");
  EXPECT_STREQ(to_string(now().origin), "scheduler");
  EXPECT_EQ(*fleet.assign(0, by(origins::command, "root", "efficient-fix")),
            "GPU 0 will be governed by efficient-fix when job 7 has ended");
  EXPECT_TRUE(fleet.assign(0, by(origins::run, "ann", "max-freq")).ok());
  EXPECT_EQ(now().who, "ann");
  EXPECT_EQ(*fleet.assign(0, by(kJob, "job 8", "assure")),
            "GPU 0 will be governed by assure when the run of ann has ended");
}

TEST_F(AnotherOrigin, EndsByItself) {
  EXPECT_TRUE(fleet.assign(0, by(kJob, "job 7", "assure", clock.now() + 1h)).ok());
  clock.advance(1h);
  fleet.maintain();
  EXPECT_FALSE(fleet.gpus()[0].assigned);
}

TEST_F(AnotherOrigin, LosesNoMoreThanOperatorsHavePromised) {
  const auto job = by(kJob, "job 7", "assure"), strict = by(origins::command, "root", "max-freq");
  const auto allowed = [&] {
    return beyond_operators(*job.policy,
                            fleet.assignments().of_operators(fleet.gpus()[0].uuid(), clock.now()));
  };
  EXPECT_TRUE(allowed().ok());
  EXPECT_TRUE(fleet.assign(0, job).ok());
  EXPECT_TRUE(allowed().ok());  // it is no operator's
  EXPECT_TRUE(fleet.assign(0, strict).ok());
  EXPECT_EQ(allowed().error().code, Errc::no_permission);
  EXPECT_TRUE(fleet.release(0, "root").ok());
  EXPECT_EQ(allowed().error().message, "an operator has released it (`derate policy set` ends it)");
}

}  // namespace
}  // namespace derate
