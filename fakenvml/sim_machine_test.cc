#include "fakenvml/sim_machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "device/nvml/nvml_abi.h"
#include "device/sim/sim_workload.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;
using namespace std::chrono_literals;

constexpr uid_t kOwner = 1000;
constexpr Peer kUser{1, 4711, kOwner};

const SimChip* chip(const char* name) { return *find_sim_chip(name); }

class SimMachineTest : public testing::Test {
 protected:
  Return ask(Op op, unsigned int gpu = kEveryGpu, unsigned int a = 0, unsigned int b = 0,
             const Peer& peer = kUser) {
    Request request;
    request.op = op;
    request.gpu = gpu;
    request.a = a;
    request.b = b;
    return code(machine_.handle(request, peer));
  }
  static Return code(const Outcome& outcome) { return static_cast<Return>(outcome.reply.code); }
  Reply start(const char* workload, std::uint64_t connection, double work_s = 0,
              unsigned int gpu = 0) {
    Request request;
    request.op = Op::start_job;
    request.gpu = gpu;
    request.number = work_s;
    put_text(request.name, workload);
    return machine_.handle(request, {connection, static_cast<pid_t>(connection), kOwner}).reply;
  }
  Reply status(std::uint64_t connection) {
    Request request;
    request.op = Op::job_status;
    return machine_.handle(request, {connection, 0, kOwner}).reply;
  }
  void pass(Duration time) { machine_.advance_to(time_ += time); }
  GpuNow now(unsigned int gpu = 0) const { return *state_->gpu[gpu].now.read(); }

  std::unique_ptr<State> state_ = std::make_unique<State>();
  SimMachine machine_{{.chips = {chip("V100-SXM2"), chip("H200")}, .owner = kOwner}, *state_};
  Duration time_{};
};

TEST_F(SimMachineTest, AnEngineServesRequestsAndCountsThem) {
  Request request;
  request.op = Op::start_engine;
  request.gpu = 0;
  request.engine.rate = 0.5;
  request.engine.most_running = 16;
  const auto begin = [&](std::uint64_t connection) {
    return machine_.handle(request, {connection, static_cast<pid_t>(connection), kOwner}).reply;
  };
  const auto engine = [&](std::uint64_t connection) {
    Request status;
    status.op = Op::engine_status;
    return machine_.handle(status, {connection, 0, kOwner}).reply;
  };
  ASSERT_EQ(begin(1).code, 0u);
  pass(60s);
  const Reply reply = engine(1);
  ASSERT_EQ(reply.code, 0u);
  EXPECT_GT(reply.engine.generated_tokens, 100);
  EXPECT_GT(reply.engine.steps, 100);
  EXPECT_LE(reply.engine.running, 16);
  double intervals = 0;
  for (const double count : reply.engine.between_tokens) intervals += count;
  // Each request's first token has no interval before it.
  double first = 0;
  for (const double count : reply.engine.first_token) first += count;
  EXPECT_DOUBLE_EQ(intervals + first, reply.engine.generated_tokens);
  EXPECT_EQ(start("GeMM", 2).code, 0u);
  EXPECT_NE(engine(2).code, 0u);  // no engine
  machine_.forget(1, false);
  EXPECT_NE(engine(1).code, 0u);
  request.engine.rate = 1e9;
  EXPECT_NE(begin(3).code, 0u);
  request.engine.rate = 1;
  put_text(request.engine.name, "gpt");
  EXPECT_NE(begin(3).code, 0u);
  request.gpu = 1;  // a chip without engines
  EXPECT_NE(begin(3).code, 0u);
}

TEST_F(SimMachineTest, ALockIsKeptAndTakesEffect) {
  EXPECT_EQ(start("GeMM", 1).code, 0u);
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 952, 952), Return::success);
  pass(2s);
  EXPECT_EQ(now().sm_clock_mhz, 952u);
  EXPECT_EQ(now().locked_lowest_mhz, 952u);
  EXPECT_EQ(now().writes, 1u);
  EXPECT_EQ(now(1).writes, 0u);
  EXPECT_EQ(ask(Op::reset_locked_clocks, 0), Return::success);
  pass(2s);
  EXPECT_EQ(now().sm_clock_mhz, 1530u);
  EXPECT_EQ(now().locked_lowest_mhz, kNone);
}

TEST(SimMachineOfAChipFile, WithoutAnArchitectureItsClocksCanBeLocked) {
  SimChip card = *chip("V100-SXM2");
  card.architecture = Architecture::unknown;
  const auto state = std::make_unique<State>();
  SimMachine machine({.chips = {&card}, .owner = kOwner}, *state);
  Request request;
  request.op = Op::set_locked_clocks;
  request.gpu = 0;
  request.a = request.b = 952;
  EXPECT_EQ(static_cast<Return>(machine.handle(request, kUser).reply.code), Return::success);
  EXPECT_EQ(state->gpu[0].now.read()->locked_lowest_mhz, 952u);
}

TEST_F(SimMachineTest, ClocksBetweenSupportedOnesGoDownAndOthersAreRefused) {
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 953, 959), Return::success);
  EXPECT_EQ(now().locked_lowest_mhz, 952u);
  EXPECT_EQ(now().locked_highest_mhz, 952u);
  const GpuNow before = now();
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 134, 952), Return::invalid_argument);
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 952, 1531), Return::invalid_argument);
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 960, 952), Return::invalid_argument);
  EXPECT_EQ(ask(Op::set_power_limit, 0, 149'999), Return::invalid_argument);
  EXPECT_EQ(ask(Op::set_power_limit, 0, 300'001), Return::invalid_argument);
  EXPECT_EQ(ask(Op::set_application_clocks, 0, 877, 953), Return::invalid_argument);
  EXPECT_EQ(ask(Op::set_persistence, 0, 2), Return::invalid_argument);
  EXPECT_EQ(ask(Op::set_mig, 0, 1), Return::not_supported);
  EXPECT_EQ(ask(Op::set_memory_locked_clocks, 0, 877, 877), Return::not_supported);
  EXPECT_EQ(now().writes, before.writes);
  EXPECT_EQ(now().locked_highest_mhz, before.locked_highest_mhz);
}

TEST_F(SimMachineTest, ApplicationClocksCapTheClockUntilALock) {
  start("GeMM", 1);
  EXPECT_EQ(ask(Op::set_application_clocks, 0, 877, 1200), Return::success);
  pass(2s);
  EXPECT_EQ(now().sm_clock_mhz, 1200u);
  EXPECT_TRUE(now().throttle_reasons & throttle::kApplicationsClocksSetting);
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 1380, 1380), Return::success);
  pass(2s);
  EXPECT_EQ(now().sm_clock_mhz, 1380u);
  EXPECT_EQ(ask(Op::reset_locked_clocks, 0), Return::success);
  EXPECT_EQ(ask(Op::reset_application_clocks, 0), Return::success);
  pass(2s);
  EXPECT_EQ(now().sm_clock_mhz, 1530u);
}

TEST_F(SimMachineTest, OnlyTheOwnerAndRootWrite) {
  const Peer stranger{2, 12, kOwner + 1}, root{3, 13, 0};
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 952, 952, stranger), Return::no_permission);
  EXPECT_EQ(ask(Op::gpu_fault, 0, 1, 0, stranger), Return::no_permission);
  EXPECT_EQ(ask(Op::clear_faults, 0, 0, 0, stranger), Return::no_permission);
  EXPECT_EQ(ask(Op::hello, kEveryGpu, 0, 0, stranger), Return::success);
  EXPECT_EQ(now().writes, 0u);
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 952, 952, root), Return::success);
}

TEST_F(SimMachineTest, NonsenseIsRefused) {
  Request request;
  request.magic = 1;
  EXPECT_EQ(code(machine_.handle(request, kUser)), Return::argument_version_mismatch);
  request = {};
  request.version = 99;
  EXPECT_EQ(code(machine_.handle(request, kUser)), Return::argument_version_mismatch);
  for (const unsigned int op : {13u, 19u, 25u, 29u, 36u, ~0u})
    EXPECT_EQ(ask(static_cast<Op>(op), 0), Return::invalid_argument) << op;
  EXPECT_EQ(ask(Op::set_locked_clocks, 2, 952, 952), Return::invalid_argument);
  EXPECT_EQ(ask(Op::set_locked_clocks, kEveryGpu, 952, 952), Return::invalid_argument);
  EXPECT_EQ(ask(Op::gpu_fault, 0, 9), Return::invalid_argument);
  EXPECT_EQ(ask(Op::kill_writer, 0, 2, 1), Return::invalid_argument);
  for (const double work : {-1.0, 1e10, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_NE(start("GeMM", 9, work).code, 0u) << work;
}

TEST_F(SimMachineTest, JobsShareTheGpuAndEndWithTheirConnection) {
  ASSERT_EQ(start("GeMM", 1, 10).code, 0u);
  ASSERT_EQ(start("GeMM", 2, 10).code, 0u);
  EXPECT_NE(start("GeMM", 2, 10).code, 0u);  // one a connection
  pass(5s);
  // Each at half the rate; the clock's switch takes its part of the first second.
  EXPECT_NEAR(status(1).work_done_s, 2.5, 0.2);
  EXPECT_NEAR(status(2).work_done_s, status(1).work_done_s, 1e-9);
  EXPECT_NEAR(status(1).joules + status(2).joules, now().joules, 1e-6);
  EXPECT_EQ(state_->gpu[0].processes.read()->count, 2u);
  machine_.forget(2, false);
  pass(10s);
  EXPECT_EQ(status(1).finished, 1u);
  EXPECT_NEAR(status(1).time_s, 5 + 7.5, 0.4);
  EXPECT_EQ(static_cast<Return>(status(2).code), Return::not_found);
  EXPECT_EQ(state_->gpu[0].processes.read()->count, 0u);
}

TEST_F(SimMachineTest, AWorkloadRunsOnItsOwnChipOnly) {
  EXPECT_EQ(static_cast<Return>(start("GeMM", 1, 1, 1).code), Return::not_found);
}

TEST_F(SimMachineTest, ALostGpuComesBackWithoutItsSettings) {
  start("GeMM", 1);
  ask(Op::set_locked_clocks, 0, 952, 952);
  ask(Op::set_power_limit, 0, 200'000);
  EXPECT_EQ(ask(Op::gpu_fault, 0, static_cast<unsigned int>(GpuFault::lost)), Return::success);
  EXPECT_EQ(now().lost, 1u);
  EXPECT_EQ(now(1).lost, 0u);
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 952, 952), Return::gpu_is_lost);
  EXPECT_EQ(static_cast<Return>(status(1).code), Return::gpu_is_lost);
  EXPECT_EQ(ask(Op::clear_faults), Return::success);
  EXPECT_EQ(now().lost, 0u);
  EXPECT_EQ(now().locked_highest_mhz, kNone);
  EXPECT_EQ(now().power_limit_mw, 300'000u);
}

TEST_F(SimMachineTest, IgnoredWritesSucceedAndDoNothing) {
  ask(Op::gpu_fault, 0, static_cast<unsigned int>(GpuFault::writes_ignored));
  EXPECT_EQ(ask(Op::set_locked_clocks, 0, 952, 952), Return::success);
  EXPECT_EQ(ask(Op::set_power_limit, 0, 200'000), Return::success);
  EXPECT_EQ(ask(Op::set_persistence, 0, 0), Return::success);
  EXPECT_EQ(now().locked_highest_mhz, kNone);
  EXPECT_EQ(now().power_limit_mw, 300'000u);
  EXPECT_EQ(now().modes.persistence, 1u);
  EXPECT_EQ(now().writes, 3u);
}

TEST_F(SimMachineTest, CountersGoWrongAsTold) {
  start("GeMM", 1);
  pass(10s);
  const std::uint64_t before = now().energy_mj;
  ASSERT_GT(before, 1'000'000u);
  const auto energy_under = [&](GpuFault fault) {
    ask(Op::clear_faults, 0);
    ask(Op::gpu_fault, 0, static_cast<unsigned int>(fault));
    pass(1s);
    return now().energy_mj;
  };
  EXPECT_EQ(energy_under(GpuFault::counters_frozen), before);
  EXPECT_LT(energy_under(GpuFault::counters_backwards), before + 300'000);
  const std::uint64_t first = now().energy_mj;
  pass(1s);
  EXPECT_LT(now().energy_mj, first);
  EXPECT_LT(energy_under(GpuFault::counters_wrapped), 400'000u);
  EXPECT_GT(energy_under(GpuFault::counters_jump), 1'000'000'000'000u);
  ask(Op::clear_faults);
  EXPECT_GT(now().energy_mj, before);
  EXPECT_LT(now().energy_mj, 10'000'000u);
}

TEST_F(SimMachineTest, AKillStrikesTheWriteThatWasNamed) {
  Request request;
  request.op = Op::set_locked_clocks;
  request.gpu = 0;
  request.a = request.b = 952;
  ask(Op::kill_writer, kEveryGpu, 0, 2);
  EXPECT_FALSE(machine_.handle(request, kUser).kill);
  request.a = request.b = 960;
  EXPECT_TRUE(machine_.handle(request, kUser).kill);
  EXPECT_EQ(now().locked_highest_mhz, 952u);  // before it took effect
  EXPECT_FALSE(machine_.handle(request, kUser).kill);
  ask(Op::kill_writer, kEveryGpu, 1, 1);
  request.a = request.b = 1200;
  EXPECT_TRUE(machine_.handle(request, kUser).kill);
  EXPECT_EQ(now().locked_highest_mhz, 1200u);
}

TEST_F(SimMachineTest, APartitionEndsJobsAndNamesInstancesAnew) {
  const auto partition = [&](unsigned int gpu, const char* layout, uid_t uid = kOwner) {
    Request request;
    request.op = Op::partition;
    request.gpu = gpu;
    put_text(request.name, layout);
    return code(machine_.handle(request, {1, 4711, uid}));
  };
  EXPECT_EQ(start("", 1, 0, 1).code, 0u);
  EXPECT_EQ(partition(1, "3g,3g", 1001), Return::no_permission);
  EXPECT_EQ(partition(0, "3g"), Return::not_supported);  // a V100
  EXPECT_EQ(partition(1, "7g,1g"), Return::invalid_argument);
  EXPECT_EQ(now(1).mig, 0u);
  EXPECT_EQ(partition(1, "3g,3g"), Return::success);
  EXPECT_EQ(now(1).mig, 1u);
  EXPECT_NE(status(1).code, 0u);
  const GpuInstances before = *state_->gpu[1].instances.read();
  ASSERT_EQ(before.count, 2u);
  EXPECT_EQ(partition(1, "3g,3g"), Return::success);
  EXPECT_STRNE(state_->gpu[1].instances.read()->devices[1].uuid, before.devices[1].uuid);
  EXPECT_EQ(state_->gpu[1].processes.read()->count, 0u);
  EXPECT_EQ(ask(Op::clear_faults), Return::success);
  EXPECT_EQ(now(1).mig, 1u);  // which is no fault
  EXPECT_EQ(ask(Op::set_mig, 1, 0), Return::success);
  EXPECT_EQ(now(1).mig, 0u);
  EXPECT_EQ(state_->gpu[1].instances.read()->count, 0u);
}

TEST_F(SimMachineTest, MigTakesTheLocksAndTheUtilisation) {
  ask(Op::set_locked_clocks, 1, 1410, 1410);
  pass(1s);
  EXPECT_NE(now(1).gpu_percent, kNone);
  ask(Op::gpu_fault, 1, static_cast<unsigned int>(GpuFault::mig));
  EXPECT_EQ(now(1).mig, 1u);
  EXPECT_EQ(now(1).gpu_percent, kNone);
  EXPECT_EQ(now(1).locked_highest_mhz, kNone);
}

TEST_F(SimMachineTest, WithoutPersistenceSettingsGoWithTheLastClient) {
  ask(Op::set_locked_clocks, 0, 952, 952);
  machine_.forget(1, true);
  EXPECT_EQ(now().locked_highest_mhz, 952u);
  ask(Op::set_persistence, 0, 0);
  machine_.forget(1, false);
  EXPECT_EQ(now().locked_highest_mhz, 952u);
  machine_.forget(1, true);
  pass(10ms);
  EXPECT_EQ(now().locked_highest_mhz, kNone);
}

TEST(SeqlockBox, AWriterThatDiedIsNotWaitedForForEver) {
  struct Dead {
    std::uint64_t sequence = 1, word = 7;  // in the middle of a write
  };
  using Box = SeqlockBox<std::uint64_t>;
  static_assert(sizeof(Dead) == sizeof(Box));
  Box box;
  const Dead dead;
  std::memcpy(static_cast<void*>(&box), &dead, sizeof dead);
  EXPECT_FALSE(box.read());
}

TEST(SeqlockBox, AReaderNeverSeesHalfAWrite) {
  struct Pair {
    std::uint64_t values[16];
  };
  SeqlockBox<Pair> box;
  std::atomic<bool> done{false};
  const std::jthread writer([&] {
    for (std::uint64_t n = 1; n <= 200'000; ++n) {
      Pair pair;
      for (auto& value : pair.values) value = n;
      box.write(pair);
    }
    done = true;
  });
  std::uint64_t last = 0;
  while (!done) {
    const auto pair = box.read();
    ASSERT_TRUE(pair);
    for (const auto value : pair->values) ASSERT_EQ(value, pair->values[0]);
    ASSERT_GE(pair->values[0], last);
    last = pair->values[0];
  }
}

}  // namespace
}  // namespace derate::fakenvml
