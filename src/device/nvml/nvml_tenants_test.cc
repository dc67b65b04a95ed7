#include "device/nvml/nvml_tenants.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "device/nvml/nvml_device.h"
#include "fakenvml/test_nvml.h"

namespace derate {
namespace {

using nvml::Return;
using namespace std::chrono_literals;

constexpr unsigned int kNotKnown = ~0u;

struct NvmlTenantsTest : ::testing::Test {
  NvmlTenantsTest() : gpu(fake.add_gpu()) { clock.step_wall(kWall); }
  // The time of a sample that is `ago` older than now.
  unsigned long long sampled(Duration ago = {}) const {
    const auto time = (clock.wall_now() - ago).time_since_epoch();
    return static_cast<unsigned long long>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }
  static constexpr Duration kWall = std::chrono::hours(24 * 365 * 56);
  std::unique_ptr<NvmlDevice> open(const NvmlFunctions& functions = StagedNvml::functions()) {
    return *NvmlDevice::open(*NvmlLibrary::create(functions), 0, clock);
  }
  Result<Tenancy> read_after(NvmlDevice& device, Duration wait) {
    clock.advance(wait);
    return device.tenancy();
  }
  std::vector<GpuInstance> instances_after(NvmlDevice& device, Duration wait) {
    return read_after(device, wait)->instances;
  }
  std::vector<GpuProcess> processes_after(NvmlDevice& device, Duration wait) {
    return read_after(device, wait)->processes;
  }
  // 1g, 2g and 3g, the last one cut in two.
  void partition() {
    gpu.add_instance(2, "3g.71gb", "MIG-c");
    gpu.mig_devices.front()->attributes.compute_instance_slices = 1;
    gpu.mig_devices.front()->attributes.multiprocessors = 20;
    gpu.mig_devices.front()->name = "NVIDIA H200 MIG 1c.3g.71gb";
    StagedMigDevice& second = gpu.add_compute(2, 1, "MIG-d");
    second.attributes.compute_instance_slices = 1;
    second.attributes.multiprocessors = 20;
    gpu.add_instance(5, "2g.35gb", "MIG-b");
    gpu.add_instance(9, "1g.18gb", "MIG-a");
  }

  StagedNvml fake;
  StagedGpu& gpu;
  FakeClock clock;
};

// --- MIG -----------------------------------------------------------------------------------------

TEST_F(NvmlTenantsTest, TellsEveryInstanceAndTheWhole) {
  partition();
  gpu.add_instance(11, "1g.18gb", "");  // has no compute instance
  const auto device = open();
  const Tenancy tenancy = *device->tenancy();
  EXPECT_TRUE(tenancy.mig);
  EXPECT_EQ(tenancy.slices, 7);
  EXPECT_EQ(tenancy.memory_slices, 8);
  EXPECT_EQ(tenancy.multiprocessors, 132);
  ASSERT_EQ(tenancy.instances.size(), 4u);
  const double mebibyte = 1048576;
  EXPECT_EQ(tenancy.instances[0],
            (GpuInstance{2, "MIG-c", "3g.71gb", 3, 4, 60, 71'168 * mebibyte, {}}));
  EXPECT_EQ(tenancy.instances[1],
            (GpuInstance{5, "MIG-b", "2g.35gb", 2, 2, 32, 33'280 * mebibyte, {}}));
  EXPECT_EQ(tenancy.instances[2].uuid, "MIG-a");
  EXPECT_EQ(tenancy.instances[3],
            (GpuInstance{11, "", "1g.18gb", 1, 1, 16, 16'384 * mebibyte, {}}));
}

TEST_F(NvmlTenantsTest, AMigDeviceLeadsToItsGpu) {
  partition();
  fake.add_gpu().uuid = "GPU-other";
  const auto library = *NvmlLibrary::create(StagedNvml::functions());
  EXPECT_EQ(*gpu_of_mig_device(*library, "MIG-d"), open()->capability().id.uuid);
  EXPECT_EQ(gpu_of_mig_device(*library, "MIG-z").error().code, Errc::not_found);
}

// Those who are not root see only what has a compute instance, and the same of it.
TEST_F(NvmlTenantsTest, TheSameWithoutTheRightsOfRoot) {
  partition();
  const Tenancy all = *open()->tenancy();
  fake.failing = {{"nvmlDeviceGetGpuInstances", Return::no_permission}};
  const Tenancy seen = *open()->tenancy();
  EXPECT_EQ(seen.instances, all.instances);
  EXPECT_EQ(seen.slices, 7);
  // Without profiles either: from the compute instances alone.
  fake.failing["nvmlDeviceGetGpuInstanceProfileInfoV"] = Return::no_permission;
  const Tenancy bare = *open()->tenancy();
  EXPECT_EQ(bare.slices, std::nullopt);
  ASSERT_EQ(bare.instances.size(), 3u);
  EXPECT_EQ(bare.instances[0].profile, "3g.71gb");
  EXPECT_EQ(bare.instances[0].slices, 3);
  EXPECT_EQ(bare.instances[0].multiprocessors, 60);  // 40 on two of three slices
  EXPECT_EQ(bare.instances[0].memory_bytes, all.instances[0].memory_bytes);
  EXPECT_EQ(bare.instances[0].memory_slices, 0);
}

TEST_F(NvmlTenantsTest, CountersOfEachInstanceSinceItWasLastAsked) {
  partition();
  gpu.instance_sm = {{2, 70}, {5, 0}, {9, 20}};
  const auto device = open();
  for (const GpuInstance& one : instances_after(*device, 0s)) EXPECT_EQ(one.activity, Activity{});
  for (const GpuInstance& one : instances_after(*device, 50ms)) EXPECT_EQ(one.activity, Activity{});
  const Tenancy tenancy = *read_after(*device, 950ms);
  EXPECT_EQ(tenancy.board.activity.sm, percent(90));
  EXPECT_EQ(tenancy.instances[0].activity.sm, percent(70));
  EXPECT_EQ(tenancy.instances[1].activity.sm, percent(0));  // did nothing, which is not unknown
  EXPECT_EQ(tenancy.instances[2].activity.sm, percent(20));
  EXPECT_FALSE(read_after(*device, 200ms)->instances[1].activity.sm);  // too short to be sure
}

TEST_F(NvmlTenantsTest, AnInstanceWhoseCountersFailIsWithoutThem) {
  partition();
  const auto device = open();
  (void)device->tenancy();
  gpu.instance_gpm_codes[5] = Return::unknown;
  fake.called.clear();
  for (int i = 0; i < 5; ++i) {
    const Tenancy tenancy = *read_after(*device, 1s);
    EXPECT_NE(tenancy.instances[0].activity, Activity{});
    EXPECT_EQ(tenancy.instances[1].activity, Activity{});
    EXPECT_NE(tenancy.instances[2].activity, Activity{});
  }
  // Looked up once for it, not every time.
  EXPECT_EQ(fake.called["nvmlDeviceGetMaxMigDeviceCount"], 1);
  gpu.instance_gpm_codes.clear();
  EXPECT_NE(read_after(*device, 1s)->instances[1].activity, Activity{});
  gpu.instance_gpm_codes[5] = Return::gpu_is_lost;
  EXPECT_EQ(read_after(*device, 1s).error().code, Errc::gpu_lost);
}

TEST_F(NvmlTenantsTest, MetricsThatAreNoNumbersAreEmpty) {
  partition();
  gpu.gpm_values[2] = std::nan("");
  gpu.gpm_values[12] = -3;
  gpu.gpm_codes[5] = Return::not_supported;
  const auto device = open();
  (void)device->tenancy();
  const Tenancy tenancy = *read_after(*device, 1s);
  for (const GpuInstance& one : tenancy.instances) {
    EXPECT_FALSE(one.activity.sm || one.activity.fp32 || one.activity.tensor);
    EXPECT_EQ(one.activity.dram, percent(30));
  }
}

TEST_F(NvmlTenantsTest, WithoutCountersOfInstancesTheyHaveNone) {
  partition();
  NvmlFunctions functions = StagedNvml::functions();
  functions.gpm_mig_sample = nullptr;
  const auto device = open(functions);
  (void)device->tenancy();
  const Tenancy tenancy = *read_after(*device, 1s);
  EXPECT_EQ(tenancy.instances.size(), 3u);
  for (const GpuInstance& one : tenancy.instances) EXPECT_EQ(one.activity, Activity{});
}

// An id that is given out again is another instance at once, with a window of its own.
TEST_F(NvmlTenantsTest, AnIdThatIsUsedAgainIsAnotherInstance) {
  partition();
  const auto device = open();
  (void)device->tenancy();
  ASSERT_NE(read_after(*device, 1s)->instances[2].activity, Activity{});
  gpu.remove_instance(9);
  gpu.add_instance(9, "2g.35gb", "MIG-new");
  const Tenancy after = *read_after(*device, 1s);
  ASSERT_EQ(after.instances.size(), 3u);
  EXPECT_EQ(after.instances[2].uuid, "MIG-new");
  EXPECT_EQ(after.instances[2].profile, "2g.35gb");
  EXPECT_EQ(after.instances[2].activity, Activity{});
  EXPECT_NE(after.instances[1].activity, Activity{});
  EXPECT_NE(read_after(*device, 1s)->instances[2].activity, Activity{});
}

TEST_F(NvmlTenantsTest, HandlesAreKeptAndLookedUpEveryTenSeconds) {
  partition();
  const auto device = open();
  (void)device->tenancy();
  gpu.add_instance(12, "1g.18gb", "MIG-late");
  fake.called.clear();
  for (int i = 0; i < 9; ++i) EXPECT_EQ(read_after(*device, 1s)->instances.size(), 3u);
  EXPECT_EQ(fake.called["nvmlDeviceGetMigDeviceHandleByIndex"], 0);
  EXPECT_EQ(read_after(*device, 1s)->instances.size(), 3u);  // looks around after it has read
  EXPECT_EQ(read_after(*device, 1s)->instances.size(), 4u);
  // One that is at work is found at once.
  gpu.add_instance(13, "1g.18gb", "MIG-busy");
  gpu.compute = {{100, 1, 13, 0}};
  EXPECT_EQ(read_after(*device, 1s)->instances.size(), 5u);
  // A process on an instance that may not be seen does not start it over and over.
  gpu.compute.push_back({101, 1, 99, 0});
  fake.called.clear();
  for (int i = 0; i < 5; ++i) (void)read_after(*device, 1s);
  EXPECT_EQ(fake.called["nvmlDeviceGetMaxMigDeviceCount"], 1);
}

TEST_F(NvmlTenantsTest, WhoMayNotListInstancesIsToldSo) {
  partition();
  const auto device = open();
  ASSERT_TRUE(device->tenancy().ok());
  const auto fresh = open();
  for (const char* call : {"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId"}) {
    fake.failing = {{call, Return::no_permission}};
    const auto refused = fresh->tenancy();
    ASSERT_FALSE(refused.ok()) << call;
    EXPECT_EQ(refused.error().code, Errc::no_permission);
    EXPECT_NE(refused.error().message.find(call), std::string::npos);
  }
  fake.failing = {{"nvmlDeviceGetMaxMigDeviceCount", Return::not_supported}};
  const auto none = open()->tenancy();
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->mig);
}

TEST_F(NvmlTenantsTest, MigWithNoInstance) {
  gpu.mig = 1;
  const Tenancy tenancy = *open()->tenancy();
  EXPECT_TRUE(tenancy.mig);
  EXPECT_TRUE(tenancy.instances.empty());
  EXPECT_EQ(tenancy.slices, 7);
}

TEST_F(NvmlTenantsTest, AChangedMigModeIsAnotherGpu) {
  const auto device = open();
  ASSERT_FALSE(device->tenancy()->mig);
  partition();
  EXPECT_EQ(read_after(*device, 1s).error().code, Errc::gpu_lost);
  const auto anew = open();
  EXPECT_EQ(anew->tenancy()->instances.size(), 3u);
  gpu.mig = 0;
  gpu.mig_devices.clear();
  gpu.instances.clear();
  fake.failing = {{"nvmlDeviceGetMaxMigDeviceCount", Return::unknown}};
  EXPECT_EQ(read_after(*anew, 1s).error().code, Errc::gpu_lost);
}

// Any re-partition, at any pace: what is there is told and nothing else, no window reaches over a
// change, and buffers of what is gone are given back.
RC_GTEST_FIXTURE_PROP(NvmlTenantsTest, AnyRepartition, ()) {
  gpu.mig = 1;
  const auto device = open();
  const std::vector<std::string> profiles{"1g.18gb", "2g.35gb", "3g.71gb"};
  std::map<int, std::string> there;
  int born = 0;
  const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 60));
  for (const int step : steps) {
    const int id = step % 6;
    if (there.erase(id) > 0) gpu.remove_instance(static_cast<unsigned>(id));
    if (step >= 20) {
      there[id] = "MIG-" + std::to_string(++born);
      gpu.add_instance(static_cast<unsigned>(id), profiles[static_cast<std::size_t>(step % 3)],
                       there[id]);
    }
    gpu.compute = {{1, 1, there.empty() ? nvml::kNoInstance : unsigned(there.rbegin()->first), 0}};
    if (step % 7 == 0) (void)device->read({});
    clock.advance(11s);
    (void)device->tenancy();
    const Tenancy tenancy = *read_after(*device, 1s);
    std::map<int, std::string> told;
    for (const GpuInstance& one : tenancy.instances) told[one.id] = one.uuid;
    RC_ASSERT(told == there);
    RC_ASSERT(std::is_sorted(tenancy.instances.begin(), tenancy.instances.end(),
                             [](const auto& a, const auto& b) { return a.id < b.id; }));
    // The GPU's own, the board's of tenancy, and one of each instance: of two buffers each.
    RC_ASSERT(fake.gpm_samples == 2 * (2 + static_cast<int>(there.size())));
  }
}

// --- processes -----------------------------------------------------------------------------------

TEST_F(NvmlTenantsTest, AProcessOnSeveralInstancesHasARowForEach) {
  partition();
  gpu.compute = {{30, 100, 9, 0}, {20, 10, 5, 0}, {20, 1, 2, 0}, {20, 2, 2, 1}};
  gpu.process_utilization = {{20, 10'000'000, 50, 10, 0, 0}};
  fake.failing = {{"nvmlDeviceGetProcessUtilization", Return::not_supported}};  // as MIG has it
  fake.process_names = {{20, "train"}, {30, "serve"}};
  const auto device = open();
  const Tenancy tenancy = *device->tenancy();
  const auto row = [](std::int64_t pid, const char* name, double bytes, int instance) {
    return GpuProcess{pid, name, bytes, {}, {}, instance};
  };
  EXPECT_EQ(tenancy.processes, (std::vector{row(20, "train", 3, 2), row(20, "train", 10, 5),
                                            row(30, "serve", 100, 9)}));
  EXPECT_EQ(tenancy.board.tenants, 2);
  // The list of processes has one row each.
  const auto processes = *device->processes();
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0], (GpuProcess{20, "train", 13.0, {}, {}, {}}));
  EXPECT_EQ(processes[1].gpu_instance, 9);
}

TEST_F(NvmlTenantsTest, WithoutPrivilegesEachInstanceIsAskedForItsProcesses) {
  partition();
  gpu.compute = {{20, 1, 2, 0}, {20, 2, 2, 1}, {30, 100, 9, 0}};
  const auto device = open();
  const auto whole = device->tenancy()->processes;
  fake.failing = {{"nvmlDeviceGetComputeRunningProcesses_v2", Return::no_permission}};
  EXPECT_EQ(device->tenancy()->processes, whole);
  fake.failing["compute processes of a MIG device"] = Return::no_permission;
  EXPECT_EQ(device->tenancy().error().code, Errc::no_permission);
}

TEST_F(NvmlTenantsTest, UtilisationsAreOfTheTimeSinceTheLastAsking) {
  gpu.compute = {{10, 1, kNotKnown, kNotKnown}, {11, 1, kNotKnown, kNotKnown}, {12, 1, 0, 0}};
  gpu.process_utilization = {{10, 5'000'000, 80, 20, 0, 0}};
  const auto device = open();
  for (const GpuProcess& one : processes_after(*device, 0s)) {
    EXPECT_FALSE(one.sm_utilisation || one.memory_utilisation);
    EXPECT_FALSE(one.gpu_instance);  // without MIG, whatever the driver writes there
  }
  gpu.process_utilization.push_back({10, 6'000'000, 30, 5, 0, 0});
  gpu.process_utilization.push_back({12, 6'000'000, 101, 5, 0, 0});
  gpu.process_utilization.push_back({13, 6'000'000, 40, 5, 0, 0});  // died
  const auto processes = processes_after(*device, 1s);
  ASSERT_EQ(processes.size(), 3u);
  EXPECT_EQ(gpu.asked_since, 5'000'000u);
  EXPECT_EQ(processes[0].sm_utilisation, percent(30));
  EXPECT_EQ(processes[0].memory_utilisation, percent(5));
  EXPECT_EQ(processes[1].sm_utilisation, percent(0));  // the driver names only who worked
  EXPECT_EQ(processes[1].memory_utilisation, percent(0));
  EXPECT_FALSE(processes[2].sm_utilisation || processes[2].memory_utilisation);
  for (const GpuProcess& one : processes_after(*device, 1s))
    EXPECT_EQ(one.sm_utilisation, percent(0));
  fake.failing = {{"nvmlDeviceGetProcessUtilization", Return::unknown},
                  {"nvmlDeviceGetProcessesUtilizationInfo", Return::unknown}};
  for (const GpuProcess& one : processes_after(*device, 1s)) EXPECT_FALSE(one.sm_utilisation);
}

// As Blackwell has it.
TEST_F(NvmlTenantsTest, AnotherCallGivesUtilisationsWhereTheFirstFails) {
  gpu.compute = {{10, 1, 0, 0}, {11, 1, 0, 0}};
  const auto utilisations_after = [&](Return first) {
    gpu.process_utilization = {{10, sampled(), 30, 5, 0, 0}, {11, sampled(), 60, 5, 0, 0}};
    const auto device = open();
    fake.failing = {{"nvmlDeviceGetProcessUtilization", first}};
    (void)device->processes();
    clock.advance(6s);
    gpu.process_utilization.push_back({10, sampled(), 40, 7, 0, 0});
    return *device->processes();
  };
  for (const Return code : {Return::not_supported, Return::unknown, Return::invalid_argument}) {
    const auto processes = utilisations_after(code);
    ASSERT_EQ(processes.size(), 2u);
    EXPECT_EQ(processes[0].sm_utilisation, percent(40));
    EXPECT_EQ(processes[0].memory_utilisation, percent(7));
    EXPECT_FALSE(processes[1].sm_utilisation);  // it ran nothing since
  }
  // These are answers.
  for (const Return code : {Return::no_permission, Return::not_found})
    for (const GpuProcess& one : utilisations_after(code))
      EXPECT_NE(one.sm_utilisation, percent(40));
}

// With ticks of 5 s, a process that stopped 2 s before the second tick worked in that tick.
TEST_F(NvmlTenantsTest, AnOldSampleBetweenTwoReadingsIsOfTheTimeBetweenThem) {
  gpu.compute = {{10, 1, 0, 0}, {11, 1, 0, 0}};
  gpu.process_utilization = {{10, sampled(), 30, 5, 0, 0}, {11, sampled(), 60, 5, 0, 0}};
  const auto device = open();
  (void)device->tenancy();
  clock.advance(3s);
  gpu.process_utilization = {{10, sampled(), 40, 5, 0, 0}};
  clock.advance(2s);
  gpu.process_utilization.push_back({11, sampled(), 99, 5, 0, 0});
  const auto processes = device->tenancy()->processes;
  EXPECT_EQ(processes[0].sm_utilisation, percent(40));
  EXPECT_EQ(processes[1].sm_utilisation, percent(99));
}

// A process that has the GPU alone has its utilisation: the driver's samples, which cost it
// milliseconds, are read each ten seconds, and each time from when there is another one.
TEST_F(NvmlTenantsTest, OneProcessAloneHasTheUtilisationOfTheGpu) {
  gpu.compute = {{10, 1, 0, 0}};
  gpu.utilization = {.gpu = 63, .memory = 20};
  gpu.process_utilization = {{10, sampled(), 30, 5, 0, 0}};
  const auto device = open();
  (void)device->tenancy();
  gpu.asked_since = 7;
  for (int i = 0; i < 9; ++i) {
    const auto processes = processes_after(*device, 1s);
    EXPECT_EQ(processes[0].sm_utilisation, percent(63));
    EXPECT_EQ(gpu.asked_since, 7u);
  }
  gpu.compute.push_back({11, 1, 0, 0});
  gpu.process_utilization = {{10, sampled(-500ms), 40, 5, 0, 0},
                             {11, sampled(-500ms), 50, 5, 0, 0}};
  const auto processes = processes_after(*device, 1s);
  EXPECT_EQ(processes[0].sm_utilisation, percent(40));
  EXPECT_EQ(processes[1].sm_utilisation, percent(50));
  EXPECT_EQ(gpu.asked_since, sampled(1s));  // not since ten seconds ago
}

// The one in the list may be of another PID namespace than those that are sampled.
TEST_F(NvmlTenantsTest, OneProcessAmongStrangersStaysUnknown) {
  gpu.compute = {{10, 1, 0, 0}};
  gpu.utilization = {.gpu = 63, .memory = 20};
  const auto device = open();
  for (int i = 0; i < 4; ++i) {
    gpu.process_utilization = {{50, sampled(-500ms), 40, 5, 0, 0},
                               {51, sampled(-500ms), 50, 5, 0, 0}};
    const auto processes = processes_after(*device, 1s);
    if (i > 1) {
      EXPECT_FALSE(processes[0].sm_utilisation) << i;
    }
  }
}

// If the driver takes long for the counter, a survey has the last reading and says when it was.
TEST_F(NvmlTenantsTest, ACounterThatCostsMuchIsReadMoreSeldom) {
  NvmlFunctions slow = StagedNvml::functions();
  static decltype(slow.energy) plain;
  plain = slow.energy;
  slow.energy = [](nvml::Device device, unsigned long long* out) {
    for (const Duration end = thread_cpu_time() + 3ms; thread_cpu_time() < end;) {
    }
    return plain(device, out);
  };
  gpu.utilization = {.gpu = 63, .memory = 20};
  gpu.energy = 5000;
  const auto device = open(slow);
  int fresh = 0;
  for (int i = 0; i < 31; ++i) {
    const auto tenancy = read_after(*device, 1s);
    ASSERT_TRUE(tenancy->board.energy);
    fresh += read_of(tenancy->board, Field::energy).taken == tenancy->board.time ? 1 : 0;
  }
  EXPECT_GE(fresh, 4);  // 3 ms each 3 s are a thousandth of a core
  EXPECT_LE(fresh, 12);
  EXPECT_GE(device->costs()->mean(DriverCall::energy), 3ms);
  // That does not delay the notice that MIG was switched on.
  (void)read_after(*device, 3s)->board.energy;
  gpu.mig = 1;
  EXPECT_EQ(read_after(*device, 100ms).error().code, Errc::gpu_lost);
}

// If the driver takes long for the MIG mode, not every survey looks at it.
TEST_F(NvmlTenantsTest, AMigModeThatCostsMuchIsReadMoreSeldom) {
  NvmlFunctions slow = StagedNvml::functions();
  static decltype(slow.mig_mode) plain;
  static int looks;
  plain = slow.mig_mode;
  looks = 0;
  slow.mig_mode = [](nvml::Device device, unsigned int* now, unsigned int* pending) {
    for (const Duration end = thread_cpu_time() + 500us; thread_cpu_time() < end;) {
    }
    ++looks;
    return plain(device, now, pending);
  };
  const auto device = open(slow);
  const int before = looks;
  for (int i = 0; i < 31; ++i) ASSERT_TRUE(read_after(*device, 1s).ok());
  EXPECT_GE(looks - before, 3);
  EXPECT_LE(looks - before, 8);
  gpu.mig = 1;
  EXPECT_EQ(read_after(*device, 10s).error().code, Errc::gpu_lost);
}

// If the driver lists no computing processes, those of the graphics list may compute, too.
TEST_F(NvmlTenantsTest, WhoIsOnlyInTheGraphicsListMayComputeWhereThereIsNoOther) {
  gpu.graphics = {{10, 1, 0, 0}};
  EXPECT_FALSE(open()->tenancy()->processes[0].computes);
  fake.failing = {{"nvmlDeviceGetComputeRunningProcesses_v2", Return::not_supported}};
  EXPECT_TRUE(open()->tenancy()->processes[0].computes);
}

// Rubbish whose time is rubbish must not hide what comes later.
TEST_F(NvmlTenantsTest, TheTimeOfAGarbageEntryIsNotBelieved) {
  gpu.compute = {{10, 1, 0, 0}, {11, 1, 0, 0}};
  gpu.process_utilization = {{10, ~0ull, kNotKnown, kNotKnown, 0, 0}};
  const auto device = open();
  (void)device->tenancy();
  gpu.process_utilization = {{10, 6'000'000, 30, 5, 0, 0}};
  EXPECT_EQ(read_after(*device, 1s)->processes[0].sm_utilisation, percent(30));
}

// Two PIDs in one word give a time in the future. Such a row must not hide the rows after it.
TEST_F(NvmlTenantsTest, ATimeBeyondNowIsGarbage) {
  gpu.compute = {{10, 1, 0, 0}, {11, 1, 0, 0}};
  gpu.process_utilization = {{10, sampled(), 30, 5, 0, 0},
                             {50017, 600'000ull << 32 | 617'025, 0, 0, 0, 0}};
  const auto device = open();
  (void)device->tenancy();
  clock.advance(1s);
  gpu.process_utilization = {{10, sampled(), 30, 5, 0, 0}, {11, sampled(), 60, 5, 0, 0}};
  const auto processes = device->tenancy()->processes;
  EXPECT_EQ(processes[0].sm_utilisation, percent(30));
  EXPECT_EQ(processes[1].sm_utilisation, percent(60));
}

TEST_F(NvmlTenantsTest, AClockThatIsSetBackMakesTheMarkBeForgotten) {
  gpu.compute = {{10, 1, 0, 0}, {11, 1, 0, 0}};
  gpu.process_utilization = {{10, sampled(), 30, 5, 0, 0}};
  const auto device = open();
  (void)device->tenancy();
  clock.step_wall(-std::chrono::hours(1));
  clock.advance(1s);
  gpu.process_utilization.push_back({10, sampled(), 40, 5, 0, 0});
  EXPECT_EQ(device->tenancy()->processes[0].sm_utilisation, percent(40));
  clock.advance(1s);
  gpu.process_utilization.push_back({10, sampled(), 50, 5, 0, 0});
  EXPECT_EQ(device->tenancy()->processes[0].sm_utilisation, percent(50));
}

// The list has the container's PIDs, the samples the machine's: unsampled processes may have
// worked.
TEST_F(NvmlTenantsTest, SamplesOfProcessesThatNoListHasMakeOthersUnknown) {
  gpu.compute = {{10, 1, 0, 0}, {11, 1, 0, 0}};
  const auto device = open();
  (void)device->tenancy();
  const auto next = [&] {
    clock.advance(1s);
    gpu.process_utilization = {{10, sampled(), 30, 5, 0, 0}, {645401, sampled(), 60, 5, 0, 0}};
    return device->tenancy()->processes;
  };
  EXPECT_EQ(next()[1].sm_utilisation, percent(0));  // that process may just have ended
  const auto processes = next();
  EXPECT_EQ(processes[0].sm_utilisation, percent(30));
  EXPECT_FALSE(processes[1].sm_utilisation || processes[1].memory_utilisation);
}

TEST_F(NvmlTenantsTest, WithoutListsOfProcessesThereAreInstancesOnly) {
  fake.failing = {{"nvmlDeviceGetComputeRunningProcesses_v2", Return::not_supported},
                  {"nvmlDeviceGetGraphicsRunningProcesses_v2", Return::not_supported}};
  EXPECT_EQ(open()->tenancy().error().code, Errc::not_supported);
  partition();
  fake.failing["compute processes of a MIG device"] = Return::not_supported;
  const Tenancy tenancy = *open()->tenancy();
  EXPECT_EQ(tenancy.instances.size(), 3u);
  EXPECT_TRUE(tenancy.processes.empty());
}

// --- beside readings -----------------------------------------------------------------------------

// Readings are the same whether tenancy is asked in between or not.
RC_GTEST_FIXTURE_PROP(NvmlTenantsTest, ReadingsAreNotDisturbed, ()) {
  gpu.compute = {{10, 1, 0, 0}};
  const auto device = open();
  Duration since_read{}, since_tenancy{};
  bool read_before = false, asked_before = false;
  // The survey reads GPM less often if a call takes that much CPU time, as under a sanitizer.
  const auto is_slow = [&] { return device->costs()->mean(DriverCall::activity) >= kDearCall; };
  for (const int step : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 400))) {
    const Duration wait = step * 1ms;
    clock.advance(wait);
    since_read += wait;
    since_tenancy += wait;
    if (is_slow()) return;
    if (step % 2 == 0) {
      const bool due = read_before && since_read >= kGpmWindow;
      RC_ASSERT((device->read({})->activity != Activity{}) == due);
      if (due || !read_before) since_read = {};
      read_before = true;
    } else {
      const bool due = asked_before && since_tenancy >= kGpmWindow;
      RC_ASSERT((device->tenancy()->board.activity != Activity{}) == due);
      if (due || !asked_before) since_tenancy = {};
      asked_before = true;
    }
  }
}

TEST_F(NvmlTenantsTest, TheBoardIsReadWithIt) {
  const auto device = open();
  (void)device->tenancy();
  const Tenancy tenancy = *read_after(*device, 1s);
  Sample expected = *device->read({.activity = false});
  expected.activity = tenancy.board.activity;
  EXPECT_EQ(tenancy.board, expected);
  EXPECT_EQ(tenancy.board.activity.sm, percent(90));
  EXPECT_EQ(tenancy.slices, std::nullopt);
}

// Each optional call missing, or failing, alone still tells who shares the GPU.
TEST_F(NvmlTenantsTest, EachCallMissingOrFailingAlone) {
  partition();
  gpu.compute = {{10, 1, 2, 0}};
  for (const NvmlSymbol& symbol : nvml_symbols()) {
    if (symbol.required) continue;
    NvmlFunctions functions = StagedNvml::functions();
    symbol.store(functions, nullptr);
    const auto device = open(functions);
    (void)device->tenancy();
    EXPECT_TRUE(read_after(*device, 1s).ok()) << symbol.name;
  }
  const auto device = open();
  (void)device->tenancy();
  fake.called.clear();
  (void)read_after(*device, 11s);
  const auto calls = fake.called;
  EXPECT_GE(calls.size(), 20u);
  // The last ones are shown alone: a GPU that is lost says so in another call of the same reading.
  const std::set<std::string> trifles{"nvmlSystemGetProcessName",
                                      "nvmlDeviceGetGpuInstances",
                                      "nvmlGpuInstanceGetInfo",
                                      "nvmlDeviceGetMemoryInfo_v2",
                                      "nvmlDeviceGetMemoryInfo",
                                      "nvmlDeviceGetCurrPcieLinkGeneration",
                                      "nvmlDeviceGetCurrPcieLinkWidth",
                                      "nvmlDeviceGetMaxPcieLinkGeneration",
                                      "nvmlDeviceGetMaxPcieLinkWidth",
                                      "nvmlDeviceGetFanSpeed",
                                      "nvmlDeviceGetEncoderUtilization",
                                      "nvmlDeviceGetDecoderUtilization",
                                      "nvmlEventSetWait_v2"};
  for (const auto& [call, times] : calls) {
    fake.failing = {{call, Return::gpu_is_lost}};
    // What fails while it looks around afterwards is found out by the next reading.
    const bool first = read_after(*device, 11s).ok(), second = read_after(*device, 11s).ok();
    EXPECT_EQ(first && second, trifles.contains(call)) << call;
  }
}

TEST_F(NvmlTenantsTest, EverythingIsGivenBack) {
  partition();
  {
    const auto device = open();
    (void)device->tenancy();
    EXPECT_EQ(fake.gpm_samples, 2 * 5);
  }
  EXPECT_EQ(fake.gpm_samples, 0);
  EXPECT_EQ(fake.initialised, 0);
}

}  // namespace
}  // namespace derate
