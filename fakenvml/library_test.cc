// The library as a program meets it: loaded with dlopen, called by name.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <future>
#include <set>

#include "fakenvml/exports.h"
#include "fakenvml/library_path.h"
#include "fakenvml/test_served.h"

namespace derate::fakenvml {
namespace {

using nvml::Device, nvml::EnableState, nvml::Return;
using namespace std::chrono_literals;

void* symbol(const char* name) {
  static void* const library = ::dlopen(kLibraryPath, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  void* const found = ::dlsym(library, name);
  CHECK(found != nullptr);
  return found;
}
// A function of the library with the prototype of its declaration.
#define NVML(name) (reinterpret_cast<decltype(&name)>(symbol(#name)))

std::vector<const SimChip*> two_chips() {
  return {*find_sim_chip("V100-SXM2"), *find_sim_chip("H200")};
}

class Library : public testing::Test {
 protected:
  void SetUp() override {
    CHECK(NVML(nvmlInit_v2)() == Return::success);
    CHECK(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &v100_) == Return::success);
    CHECK(NVML(nvmlDeviceGetHandleByIndex_v2)(1, &h200_) == Return::success);
  }
  void TearDown() override { (void)NVML(nvmlShutdown)(); }
  void fault(std::string_view call, Return code, bool hangs = false, std::uint32_t skip = 0,
             std::uint32_t times = 0) {
    Request request;
    request.op = Op::call_fault;
    put_text(request.name, call);
    request.a = static_cast<std::uint32_t>(code);
    request.b = hangs ? 1 : 0;
    request.c = skip;
    request.d = times;
    CHECK(served_.ask(request).code == 0);
  }
  void gpu_fault(GpuFault fault, unsigned int gpu) {
    Request request;
    request.op = Op::gpu_fault;
    request.gpu = gpu;
    request.a = static_cast<std::uint32_t>(fault);
    CHECK(served_.ask(request).code == 0);
  }
  void clear() {
    Request request;
    request.op = Op::clear_faults;
    CHECK(served_.ask(request).code == 0);
  }
  Return power() {
    unsigned int mw = 0;
    return NVML(nvmlDeviceGetPowerUsage)(v100_, &mw);
  }

  Served served_{two_chips()};
  Device v100_ = nullptr, h200_ = nullptr;
};

// A chip of a file: its clocks by memory clock, and no energy counter.
TEST(LibraryOfAChipFile, ListsClocksByMemoryClockAndNoCounterThatItLacks) {
  const auto chip = parse_sim_chip(R"([chip]
name = "Card-1"
[clocks]
sm_mhz = [300, 307, 315]
memory_mhz = 5001
[[lower_memory_clock]]
memory_mhz = 810
sm_mhz = [300, 307]
[power]
default_w = 80
[idle]
watts = [[300, 10]]
[voltage]
curve = "unknown"
[sensors]
counters = ["gpu_utilisation", "memory_utilisation"]
)",
                                   "card.toml");
  ASSERT_TRUE(chip.ok()) << chip.error().message;
  const Served served({&*chip});
  ASSERT_EQ(NVML(nvmlInit_v2)(), Return::success);
  Device device = nullptr;
  ASSERT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device), Return::success);
  unsigned int clocks[8] = {}, count = 8;
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedMemoryClocks)(device, &count, clocks), Return::success);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(clocks[0], 5001u);
  EXPECT_EQ(clocks[1], 810u);
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedGraphicsClocks)(device, 810, &(count = 8), clocks),
            Return::success);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(clocks[0], 307u);
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedGraphicsClocks)(device, 5001, &(count = 8), clocks),
            Return::success);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedGraphicsClocks)(device, 405, &(count = 8), clocks),
            Return::not_found);
  unsigned long long energy = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetTotalEnergyConsumption)(device, &energy), Return::not_supported);
  (void)NVML(nvmlShutdown)();
}

TEST_F(Library, InitIsCounted) {
  unsigned int count = 0;
  EXPECT_EQ(NVML(nvmlInit)(), Return::success);
  EXPECT_EQ(NVML(nvmlShutdown)(), Return::success);
  EXPECT_EQ(NVML(nvmlDeviceGetCount_v2)(&count), Return::success);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(NVML(nvmlShutdown)(), Return::success);
  EXPECT_EQ(NVML(nvmlDeviceGetCount_v2)(&count), Return::uninitialized);
  EXPECT_EQ(power(), Return::uninitialized);
  EXPECT_EQ(NVML(nvmlShutdown)(), Return::uninitialized);
}

TEST_F(Library, WithoutAServerThereIsNoDriver) {
  served_.stop();
  EXPECT_EQ(power(), Return::gpu_is_lost);
  EXPECT_EQ(NVML(nvmlShutdown)(), Return::success);
  EXPECT_EQ(NVML(nvmlInit_v2)(), Return::driver_not_loaded);
}

TEST_F(Library, NullAndForeignPointersAreRefused) {
  unsigned int number = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetPowerUsage)(v100_, nullptr), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlDeviceGetPowerUsage)(nullptr, &number), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlDeviceGetPowerUsage)(reinterpret_cast<Device>(&number), &number),
            Return::invalid_argument);
  Device device = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(2, &device), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(0, nullptr), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlDeviceGetUtilizationRates)(v100_, nullptr), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlDeviceGetFieldValues)(v100_, 1, nullptr), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedMemoryClocks)(v100_, nullptr, nullptr),
            Return::invalid_argument);
}

TEST_F(Library, ShortBuffersAreToldHowLongToBe) {
  char text[4];
  EXPECT_EQ(NVML(nvmlDeviceGetName)(v100_, text, sizeof text), Return::insufficient_size);
  unsigned int count = 10;
  unsigned int clocks[200];
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedGraphicsClocks)(v100_, 877, &count, clocks),
            Return::insufficient_size);
  EXPECT_EQ(count, 187u);
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedGraphicsClocks)(v100_, 877, &count, clocks),
            Return::success);
  EXPECT_EQ(clocks[0], 1530u);
  EXPECT_EQ(clocks[186], 135u);
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedGraphicsClocks)(v100_, 1, &count, clocks),
            Return::not_found);
}

TEST_F(Library, AGpuIsFoundByEachOfItsNames) {
  char uuid[96];
  Device device = nullptr;
  ASSERT_EQ(NVML(nvmlDeviceGetUUID)(h200_, uuid, sizeof uuid), Return::success);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByUUID)(uuid, &device), Return::success);
  EXPECT_EQ(device, h200_);
  for (const char* id : {"00000000:11:00.0", "0000:11:00.0", "11:00.0"}) {
    device = nullptr;
    EXPECT_EQ(NVML(nvmlDeviceGetHandleByPciBusId_v2)(id, &device), Return::success) << id;
    EXPECT_EQ(device, h200_);
  }
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByPciBusId_v2)("0001:11:00.0", &device), Return::not_found);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByUUID)("GPU-1", &device), Return::not_found);
}

TEST_F(Library, VersionsOfStructsAreChecked) {
  nvml::MemoryV2 memory{};
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo_v2)(v100_, &memory), Return::argument_version_mismatch);
  memory.version = nvml::kMemoryV2;
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo_v2)(v100_, &memory), Return::success);
  EXPECT_EQ(memory.total, memory.used + memory.free + memory.reserved);
  nvml::GpmSupport support{9, 0};
  EXPECT_EQ(NVML(nvmlGpmQueryDeviceSupport)(h200_, &support), Return::argument_version_mismatch);
  SimTruth truth{};
  EXPECT_EQ(NVML(nvmlDerateSimQuery)("", &truth), Return::argument_version_mismatch);
}

TEST_F(Library, AChipLacksWhatItsGenerationLacks) {
  nvml::GpmSupport support{nvml::kGpmSupportVersion, 9};
  EXPECT_EQ(NVML(nvmlGpmQueryDeviceSupport)(v100_, &support), Return::success);
  EXPECT_EQ(support.supported, 0u);
  EXPECT_EQ(NVML(nvmlGpmQueryDeviceSupport)(h200_, &support), Return::success);
  EXPECT_EQ(support.supported, 1u);
  nvml::FieldValue fields[2] = {};
  fields[0].field = nvml::kFieldPowerInstant;
  fields[1].field = nvml::kFieldEnergy;
  EXPECT_EQ(NVML(nvmlDeviceGetFieldValues)(v100_, 2, fields), Return::success);
  EXPECT_EQ(fields[0].code, Return::not_supported);
  EXPECT_EQ(fields[1].code, Return::success);
  EXPECT_EQ(NVML(nvmlDeviceGetFieldValues)(h200_, 2, fields), Return::success);
  EXPECT_EQ(fields[0].code, Return::success);
  unsigned int number = 0, other = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetMigMode)(v100_, &number, &other), Return::not_supported);
  EXPECT_EQ(NVML(nvmlDeviceGetMigMode)(h200_, &number, &other), Return::success);
  EXPECT_EQ(NVML(nvmlDeviceGetFanSpeed)(v100_, &number), Return::not_supported);
}

TEST_F(Library, WritesGoToTheServerAndShow) {
  unsigned int number = 0;
  EXPECT_EQ(NVML(nvmlDeviceSetPowerManagementLimit)(v100_, 200'000), Return::success);
  EXPECT_EQ(NVML(nvmlDeviceGetPowerManagementLimit)(v100_, &number), Return::success);
  EXPECT_EQ(number, 200'000u);
  EXPECT_EQ(NVML(nvmlDeviceSetGpuLockedClocks)(v100_, 1000, 900), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlDeviceSetGpuLockedClocks)(v100_, 952, 1200), Return::success);
  EXPECT_EQ(NVML(nvmlDeviceSetApplicationsClocks)(v100_, 877, 1305), Return::success);
  EXPECT_EQ(NVML(nvmlDeviceGetApplicationsClock)(v100_, nvml::ClockType::sm, &number),
            Return::success);
  EXPECT_EQ(number, 1305u);
  EXPECT_EQ(NVML(nvmlDeviceSetPersistenceMode)(v100_, EnableState::off), Return::success);
  char uuid[96];
  ASSERT_EQ(NVML(nvmlDeviceGetUUID)(v100_, uuid, sizeof uuid), Return::success);
  SimTruth truth{};
  truth.size = sizeof truth;
  ASSERT_EQ(NVML(nvmlDerateSimQuery)(uuid, &truth), Return::success);
  EXPECT_EQ(truth.locked_lowest_mhz, 952u);
  EXPECT_EQ(truth.locked_highest_mhz, 1200u);
  EXPECT_EQ(truth.power_limit_mw, 200'000u);
  EXPECT_EQ(truth.persistence, 0u);
  EXPECT_EQ(truth.writes, 4u);
}

TEST_F(Library, ProcessesOfAllVersions) {
  served_.start_job("GeMM");
  served_.pass(1s);
  unsigned int count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(v100_, &count, nullptr),
            Return::insufficient_size);
  EXPECT_EQ(count, 1u);
  nvml::ProcessInfo info{};
  nvml::ProcessInfoV1 old_info[2] = {};
  EXPECT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(v100_, &count, &info), Return::success);
  EXPECT_EQ(info.pid, static_cast<unsigned int>(::getpid()));
  EXPECT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses)(v100_, &count, old_info), Return::success);
  EXPECT_EQ(old_info[0].pid, info.pid);
  EXPECT_EQ(old_info[1].pid, 0u);
  nvml::ProcessUtilization use{};
  EXPECT_EQ(NVML(nvmlDeviceGetProcessUtilization)(v100_, &use, &count, 0), Return::success);
  EXPECT_GT(use.sm, 50u);
  EXPECT_EQ(NVML(nvmlDeviceGetProcessUtilization)(v100_, &use, &count, use.time_us),
            Return::not_found);
  EXPECT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(h200_, &count, &info), Return::success);
  EXPECT_EQ(count, 0u);
}

TEST_F(Library, SamplesGoOnWhereTheyWereLeft) {
  served_.pass(1s);
  nvml::ValueType type{};
  nvml::Sample samples[200];
  unsigned int count = 200;
  EXPECT_EQ(NVML(nvmlDeviceGetSamples)(h200_, 0, 0, &type, &count, samples), Return::success);
  EXPECT_EQ(type, nvml::ValueType::uint);
  EXPECT_EQ(count, 50u);  // one every 20 ms
  EXPECT_NEAR(samples[0].value.uint, 80'000, 5'000);
  const unsigned long long last = samples[count - 1].time_us;
  EXPECT_EQ(NVML(nvmlDeviceGetSamples)(h200_, 0, last, &type, &count, samples), Return::not_found);
  served_.pass(100ms);
  count = 200;
  EXPECT_EQ(NVML(nvmlDeviceGetSamples)(h200_, 0, last, &type, &count, samples), Return::success);
  EXPECT_EQ(count, 5u);
  EXPECT_EQ(NVML(nvmlDeviceGetSamples)(h200_, 5, 0, &type, &count, samples), Return::not_found);
  EXPECT_EQ(NVML(nvmlDeviceGetSamples)(h200_, 7, 0, &type, &count, samples),
            Return::invalid_argument);
}

TEST_F(Library, GpmIsTheDifferenceOfTwoSamples) {
  nvml::GpmSample older = nullptr, newer = nullptr;
  ASSERT_EQ(NVML(nvmlGpmSampleAlloc)(&older), Return::success);
  ASSERT_EQ(NVML(nvmlGpmSampleAlloc)(&newer), Return::success);
  auto query = std::make_unique<nvml::GpmMetrics>();
  *query = {nvml::kGpmMetricsVersion, 1, older, newer, {}};
  query->metrics[0].id = nvml::gpm_metric::kGraphics;
  EXPECT_EQ(NVML(nvmlGpmMetricsGet)(query.get()), Return::invalid_argument);  // nothing taken
  EXPECT_EQ(NVML(nvmlGpmSampleGet)(v100_, older), Return::not_supported);
  served_.start_job("", 1);
  served_.pass(1s);
  EXPECT_EQ(NVML(nvmlGpmSampleGet)(h200_, older), Return::success);
  served_.pass(10ms);
  EXPECT_EQ(NVML(nvmlGpmSampleGet)(h200_, newer), Return::success);
  served_.pass(100ms);
  EXPECT_EQ(NVML(nvmlGpmSampleGet)(h200_, newer), Return::success);
  EXPECT_EQ(NVML(nvmlGpmMetricsGet)(query.get()), Return::success);
  EXPECT_GT(query->metrics[0].value, 50);
  EXPECT_LE(query->metrics[0].value, 100);
  query->metrics[0].id = 210;
  EXPECT_EQ(NVML(nvmlGpmMetricsGet)(query.get()), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlGpmSampleFree)(older), Return::success);
  EXPECT_EQ(NVML(nvmlGpmSampleFree)(newer), Return::success);
}

TEST_F(Library, CallsFailAsTold) {
  fault("nvmlDeviceGetPowerUsage", Return::timeout, false, 1, 2);
  EXPECT_EQ(power(), Return::success);
  EXPECT_EQ(power(), Return::timeout);
  EXPECT_EQ(power(), Return::timeout);
  EXPECT_EQ(power(), Return::success);
  fault("nvmlDeviceSet*", Return::no_permission);
  EXPECT_EQ(NVML(nvmlDeviceSetGpuLockedClocks)(v100_, 952, 952), Return::no_permission);
  EXPECT_EQ(NVML(nvmlDeviceResetGpuLockedClocks)(v100_), Return::success);
  EXPECT_EQ(power(), Return::success);
  fault("*", Return::unknown);
  EXPECT_EQ(power(), Return::unknown);
  clear();
  EXPECT_EQ(power(), Return::success);
}

TEST_F(Library, AHangingCallComesBackWhenTheFaultIsCleared) {
  fault("nvmlDeviceGetPowerUsage", Return::success, true);
  auto call = std::async(std::launch::async, [this] { return power(); });
  EXPECT_EQ(call.wait_for(50ms), std::future_status::timeout);
  clear();
  EXPECT_EQ(call.get(), Return::success);
}

TEST_F(Library, FaultsOfOneGpu) {
  served_.pass(1s);
  gpu_fault(GpuFault::lost, 1);
  unsigned int number = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetPowerUsage)(h200_, &number), Return::gpu_is_lost);
  EXPECT_EQ(NVML(nvmlDeviceSetGpuLockedClocks)(h200_, 1410, 1410), Return::gpu_is_lost);
  EXPECT_EQ(power(), Return::success);
  gpu_fault(GpuFault::absurd, 0);
  EXPECT_EQ(NVML(nvmlDeviceGetPowerUsage)(v100_, &number), Return::success);
  EXPECT_EQ(number, ~0u);
  clear();
  gpu_fault(GpuFault::mig, 1);
  nvml::Utilization use{};
  EXPECT_EQ(NVML(nvmlDeviceGetUtilizationRates)(h200_, &use), Return::not_supported);
  EXPECT_EQ(NVML(nvmlDeviceGetUtilizationRates)(v100_, &use), Return::success);
}

// --- MIG -----------------------------------------------------------------------------------------

class MigLibrary : public Library {
 protected:
  void partition(std::string_view layout) {
    Request request;
    request.op = Op::partition;
    request.gpu = 1;
    put_text(request.name, layout);
    CHECK(served_.ask(request).code == 0);
  }
  Device device(unsigned int index) {
    Device out = nullptr;
    CHECK(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(h200_, index, &out) == Return::success);
    return out;
  }
  static std::string uuid(Device device) {
    char text[96] = {};
    return NVML(nvmlDeviceGetUUID)(device, text, sizeof text) == Return::success ? text : "";
  }
};

TEST_F(MigLibrary, InstancesAreToldAsTheyWereCut) {
  partition("3g,1g");
  unsigned int current = 0, pending = 0, number = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetMigMode)(h200_, &current, &pending), Return::success);
  EXPECT_EQ(current, 1u);
  const Device second = device(1);
  Device none = nullptr, parent = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(h200_, 2, &none), Return::not_found);
  EXPECT_EQ(NVML(nvmlDeviceIsMigDeviceHandle)(second, &number), Return::success);
  EXPECT_EQ(number, 1u);
  EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceId)(second, &number), Return::success);
  EXPECT_EQ(number, 2u);
  EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceId)(h200_, &number), Return::invalid_argument);
  EXPECT_EQ(NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(second, &parent), Return::success);
  EXPECT_EQ(parent, h200_);
  char name[96] = {};
  EXPECT_EQ(NVML(nvmlDeviceGetName)(second, name, sizeof name), Return::success);
  EXPECT_STREQ(name, "NVIDIA H200 MIG 1g.18gb");
  nvml::Attributes attributes{};
  EXPECT_EQ(NVML(nvmlDeviceGetAttributes_v2)(second, &attributes), Return::success);
  EXPECT_EQ(attributes.multiprocessors, 16u);
  EXPECT_EQ(attributes.gpu_instance_slices, 1u);
  // What a MIG device does not tell.
  EXPECT_EQ(NVML(nvmlDeviceGetPowerUsage)(second, &number), Return::not_supported);
}

TEST_F(MigLibrary, ProfilesAndInstancesFitTogether) {
  partition("3g,1g,1g");
  nvml::InstanceProfile profile{};
  EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceProfileInfoV)(h200_, 0, &profile),
            Return::argument_version_mismatch);
  profile.version = nvml::kInstanceProfileV2;
  EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceProfileInfoV)(h200_, 31, &profile), Return::not_supported);
  ASSERT_EQ(NVML(nvmlDeviceGetGpuInstanceProfileInfoV)(h200_, 0, &profile), Return::success);
  EXPECT_STREQ(profile.name, "MIG 1g.18gb");
  EXPECT_EQ(profile.instances, 7u);
  std::vector<nvml::Instance> instances(profile.instances);
  unsigned int count = 7;
  ASSERT_EQ(NVML(nvmlDeviceGetGpuInstances)(h200_, profile.id, instances.data(), &count),
            Return::success);
  ASSERT_EQ(count, 2u);
  nvml::InstanceInfo info{};
  ASSERT_EQ(NVML(nvmlGpuInstanceGetInfo)(instances[1], &info), Return::success);
  EXPECT_EQ(info.id, 3u);
  EXPECT_EQ(info.device, h200_);
  EXPECT_EQ(info.placement.start, 5u);
  EXPECT_EQ(info.placement.size, 1u);
  partition("7g");
  EXPECT_EQ(NVML(nvmlGpuInstanceGetInfo)(instances[1], &info), Return::invalid_argument);
}

TEST_F(MigLibrary, AHandleMeansWhoeverIsInItsPlace) {
  partition("3g,1g");
  const Device first = device(0), second = device(1);
  const std::string before = uuid(first);
  partition("7g");
  EXPECT_NE(uuid(first), before);
  EXPECT_EQ(uuid(second), "");
  unsigned int number = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceId)(second, &number), Return::invalid_argument);
}

TEST_F(MigLibrary, CountersAndProcessesOfAnInstance) {
  partition("3g,1g");
  Request request;
  request.op = Op::start_job;
  request.gpu = 1;
  EXPECT_NE(std::string(served_.ask(request).message).find("2 (1g.18gb)"), std::string::npos);
  served_.start_job("", 1, 0, 2);
  nvml::ProcessInfo info[4] = {};
  unsigned int count = 4;
  EXPECT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(h200_, &count, info), Return::success);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(info[0].gpu_instance, 2u);
  count = 4;
  EXPECT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device(0), &count, info),
            Return::success);
  EXPECT_EQ(count, 0u);
  nvml::ProcessUtilization used{};
  count = 1;
  EXPECT_EQ(NVML(nvmlDeviceGetProcessUtilization)(h200_, &used, &count, 0), Return::not_supported);

  nvml::GpmMetrics query{};
  query.version = nvml::kGpmMetricsVersion;
  query.count = 1;
  query.metrics[0].id = nvml::gpm_metric::kGraphics;
  CHECK(NVML(nvmlGpmSampleAlloc)(&query.older) == Return::success);
  CHECK(NVML(nvmlGpmSampleAlloc)(&query.newer) == Return::success);
  for (const unsigned int instance : {1u, 2u}) {
    EXPECT_EQ(NVML(nvmlGpmMigSampleGet)(h200_, instance, query.older), Return::success);
    served_.pass(1s);
    EXPECT_EQ(NVML(nvmlGpmMigSampleGet)(h200_, instance, query.newer), Return::success);
    EXPECT_EQ(NVML(nvmlGpmMetricsGet)(&query), Return::success);
    EXPECT_EQ(query.metrics[0].value > 50, instance == 2);
  }
  EXPECT_EQ(NVML(nvmlGpmMigSampleGet)(h200_, 3, query.newer), Return::invalid_argument);
  partition("3g,1g");  // the same ids, other instances
  EXPECT_EQ(NVML(nvmlGpmMigSampleGet)(h200_, 2, query.newer), Return::success);
  EXPECT_EQ(NVML(nvmlGpmMetricsGet)(&query), Return::invalid_argument);
  for (const nvml::GpmSample sample : {query.older, query.newer})
    (void)NVML(nvmlGpmSampleFree)(sample);
}

TEST_F(Library, EveryCodeHasWords) {
  std::set<std::string> words;
  for (unsigned int code = 0; code <= 28; ++code)
    words.insert(NVML(nvmlErrorString)(static_cast<Return>(code)));
  EXPECT_EQ(words.size(), 29u);
  EXPECT_STREQ(NVML(nvmlErrorString)(static_cast<Return>(12345)), "Unknown Error");
}

}  // namespace
}  // namespace derate::fakenvml
