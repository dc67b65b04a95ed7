#include "device/nvml/nvml_device.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "device/nvml/nvml_backend.h"
#include "fakenvml/test_nvml.h"

namespace derate {
namespace {

using namespace literals;

using nvml::Return;
using namespace std::chrono_literals;

constexpr unsigned int kAllOnes = 0xffffffff;

struct NvmlDeviceTest : ::testing::Test {
  NvmlDeviceTest() : gpu(fake.add_gpu()) { clock.step_wall(std::chrono::hours(1)); }
  Result<std::unique_ptr<NvmlDevice>> open(const NvmlFunctions& functions) {
    return NvmlDevice::open(*NvmlLibrary::create(functions), 0, clock);
  }
  std::unique_ptr<NvmlDevice> open() { return *open(StagedNvml::functions()); }
  // A sample with every field: the second GPM window closes.
  Result<Sample> read_all(NvmlDevice& device) {
    (void)device.read({});
    clock.advance(200ms);
    return device.read({});
  }

  StagedNvml fake;
  StagedGpu& gpu;
  FakeClock clock;
};

TEST_F(NvmlDeviceTest, TellsWhatTheGpuIs) {
  const auto device = open();
  const Capability& capability = device->capability();
  EXPECT_EQ(capability.id, (GpuId{0, gpu.uuid, "00000000:65:00.0", "NVIDIA H200"}));
  EXPECT_EQ(capability.architecture, Architecture::hopper);
  EXPECT_EQ(capability.persistence_mode, true);
  using Clocks = std::vector<Megahertz>;
  EXPECT_EQ(capability.memory_clocks, (Clocks{Megahertz(1593), Megahertz(3201)}));
  EXPECT_EQ(capability.sm_clocks, (Clocks{Megahertz(345), Megahertz(1965), Megahertz(1980)}));
  ASSERT_TRUE(capability.power_limits);
  EXPECT_EQ(capability.power_limits->lowest, Watts(200));
  EXPECT_EQ(capability.power_limits->highest, Watts(700));
  EXPECT_EQ(capability.power_limits->factory, Watts(700));
  EXPECT_EQ(capability.slowdown_temperature, Celsius(87));
  EXPECT_EQ(capability.flat_voltage_end, Megahertz(1005));
  EXPECT_TRUE(capability.energy_counter);
  EXPECT_TRUE(capability.instant_power);
  EXPECT_TRUE(capability.averaged_power);
  EXPECT_TRUE(capability.activity_counters);
  EXPECT_TRUE(capability.process_list);
}

TEST_F(NvmlDeviceTest, ReadsEverySensor) {
  clock.advance(5s);
  const auto device = open();
  const Sample sample = *read_all(*device);
  EXPECT_EQ(sample.time, Instant(5200ms));
  EXPECT_EQ(sample.source, SampleSource::nvml);
  EXPECT_EQ(sample.gpu_utilisation, percent(97));
  EXPECT_EQ(sample.memory_utilisation, percent(41));
  EXPECT_EQ(sample.sm_clock, Megahertz(1755));
  EXPECT_EQ(sample.memory_clock, Megahertz(3201));
  EXPECT_EQ(sample.power_usage, Watts(512.34));
  EXPECT_EQ(sample.power_average, Watts(511));
  EXPECT_EQ(sample.power_instant, Watts(600.5));
  EXPECT_EQ(sample.energy, Joules(123456.789));
  EXPECT_EQ(sample.temperature, Celsius(61));
  EXPECT_EQ(sample.throttle_reasons, throttle::kSwPowerCap);
  EXPECT_EQ(sample.activity.sm, percent(90));
  EXPECT_EQ(read_of(sample, Field::activity), (FieldRead{Field::activity, sample.time, "gpm"}));
  EXPECT_EQ(read_of(sample, Field::energy), (FieldRead{Field::energy, sample.time, "nvml"}));
}

TEST_F(NvmlDeviceTest, ReadsOnlyWhatIsPlanned) {
  const auto device = open();
  (void)device->read({});  // the first one reads the card, too
  fake.called.clear();
  const Sample sample = *device->read({.energy = false, .activity = false, .processes = false});
  EXPECT_FALSE(sample.energy);
  EXPECT_EQ(fake.called["nvmlDeviceGetComputeRunningProcesses_v2"], 0);
  EXPECT_EQ(fake.called["nvmlDeviceGetTotalEnergyConsumption"], 0);
  EXPECT_EQ(fake.called["nvmlGpmSampleGet"], 0);
  EXPECT_EQ(fake.called["nvmlDeviceGetFieldValues"], 1);
}

// Any subset of optional symbols missing still yields a GPU and a sample.
RC_GTEST_FIXTURE_PROP(NvmlDeviceTest, OptionalSymbolsAreOptional, ()) {
  NvmlFunctions functions = StagedNvml::functions();
  for (const NvmlSymbol& symbol : nvml_symbols())
    if (!symbol.required && *rc::gen::arbitrary<bool>()) symbol.store(functions, nullptr);

  const auto device = open(functions);
  RC_ASSERT(device.ok());
  RC_ASSERT((*device)->capability().id.uuid == gpu.uuid);
  const auto read = read_all(**device);
  RC_ASSERT(read.ok());
  const Sample& sample = *read;
  RC_ASSERT(sample.gpu_utilisation.has_value() == (functions.utilization != nullptr));
  RC_ASSERT(sample.sm_clock.has_value() == (functions.clock != nullptr));
  RC_ASSERT(sample.power_usage.has_value() == (functions.power_usage != nullptr));
  RC_ASSERT(sample.power_instant.has_value() == (functions.field_values != nullptr));
  RC_ASSERT(sample.throttle_reasons.has_value() == (functions.throttle_reasons != nullptr));
  RC_ASSERT(sample.energy.has_value() == (functions.energy != nullptr));
  RC_ASSERT((sample.activity != Activity{}) == (*device)->capability().activity_counters);
  const bool listed = functions.compute_processes || functions.graphics_processes;
  RC_ASSERT((*device)->processes().ok() == listed);
  RC_ASSERT((*device)->capability().process_list == listed);
}

TEST_F(NvmlDeviceTest, EachOptionalSymbolMissingAlone) {
  for (const NvmlSymbol& symbol : nvml_symbols()) {
    if (symbol.required) continue;
    NvmlFunctions functions = StagedNvml::functions();
    symbol.store(functions, nullptr);
    const auto device = open(functions);
    ASSERT_TRUE(device.ok()) << symbol.name;
    EXPECT_TRUE(read_all(**device).ok()) << symbol.name;
    EXPECT_TRUE((*device)->processes().ok()) << symbol.name;
  }
}

// One call failing leaves its own fields empty and the others as they are.
TEST_F(NvmlDeviceTest, EachCallFailingAlone) {
  const auto device = open();
  const Sample whole = *read_all(*device);
  const auto no_activity = [](Sample& s) {
    s.activity = {};
    s.read_apart = {};
  };
  const std::map<std::string, void (*)(Sample&)> emptied{
      {"nvmlDeviceGetUtilizationRates",
       [](Sample& s) { s.gpu_utilisation = s.memory_utilisation = std::nullopt; }},
      {"nvmlDeviceGetClockInfo", [](Sample& s) { s.sm_clock = s.memory_clock = std::nullopt; }},
      {"nvmlDeviceGetPowerUsage", [](Sample& s) { s.power_usage.reset(); }},
      {"nvmlDeviceGetFieldValues",
       [](Sample& s) { s.power_average = s.power_instant = std::nullopt; }},
      {"nvmlDeviceGetTemperature", [](Sample& s) { s.temperature.reset(); }},
      {"nvmlDeviceGetCurrentClocksEventReasons", [](Sample& s) { s.throttle_reasons.reset(); }},
      {"nvmlDeviceGetTotalEnergyConsumption", [](Sample& s) { s.energy.reset(); }},
      {"nvmlGpmSampleGet", no_activity},
      {"nvmlGpmMetricsGet", no_activity},
  };
  for (const Return code : {Return::not_supported, Return::no_permission, Return::unknown}) {
    for (const auto& [call, empty] : emptied) {
      fake.failing = {{call, code}};
      clock.advance(200ms);
      const auto sample = device->read({});
      ASSERT_TRUE(sample.ok()) << call;
      Sample expected = whole;
      expected.time = clock.now();
      expected.card = sample->card;  // read at its own pace
      for (FieldRead& read : expected.read_apart) read.taken = clock.now();
      empty(expected);
      EXPECT_EQ(*sample, expected) << call;
    }
  }
}

TEST_F(NvmlDeviceTest, EachCallFailingAloneAtOpen) {
  const auto calls = [&] {
    fake.called.clear();
    open();
    return fake.called;
  }();
  for (const auto& [call, times] : calls) {
    const std::string name = call;
    if (name == "nvmlInit_v2") continue;
    fake.failing = {{name, Return::unknown}};
    const bool needed = name == "nvmlDeviceGetHandleByIndex_v2" || name == "nvmlDeviceGetUUID";
    EXPECT_EQ(open(StagedNvml::functions()).ok(), !needed) << name;
  }
  EXPECT_GE(calls.size(), 16u);
}

TEST_F(NvmlDeviceTest, PowerFieldsFailOneByOne) {
  const auto device = open();
  gpu.instant_code = Return::not_supported;
  Sample sample = *device->read({});
  EXPECT_FALSE(sample.power_instant);
  EXPECT_EQ(sample.power_average, Watts(511));
  gpu.instant_code = Return::success;
  gpu.average_code = Return::unknown;
  sample = *device->read({});
  EXPECT_EQ(sample.power_instant, Watts(600.5));
  EXPECT_FALSE(sample.power_average);
  gpu.average_code = Return::gpu_is_lost;
  EXPECT_EQ(device->read({}).error().code, Errc::gpu_lost);
}

TEST_F(NvmlDeviceTest, PowerFieldsComeInAnyType) {
  const auto device = open();
  for (const auto type : {nvml::ValueType::real, nvml::ValueType::ulonglong}) {
    gpu.power_type = type;
    EXPECT_EQ(device->read({})->power_instant, Watts(600.5));
  }
  gpu.power_type = nvml::ValueType{99};
  EXPECT_FALSE(device->read({})->power_instant);
}

TEST_F(NvmlDeviceTest, ALostGpuFailsTheSampleWhicheverCallSaysSo) {
  const auto device = open();
  ASSERT_TRUE(read_all(*device).ok());
  fake.called.clear();
  clock.advance(200ms);
  ASSERT_TRUE(device->read({}).ok());
  const auto calls = fake.called;
  EXPECT_EQ(calls.size(), 11u);
  for (const auto& [call, times] : calls) {
    fake.failing = {{call, Return::gpu_is_lost}};
    clock.advance(200ms);
    const auto sample = device->read({});
    ASSERT_FALSE(sample.ok()) << call;
    EXPECT_EQ(sample.error().code, Errc::gpu_lost);
    EXPECT_EQ(sample.error().message, call + ": GPU is lost (NVML error 15)");
  }
  // Nothing more is requested of a GPU that is gone but whether its driver has reported an Xid.
  fake.failing = {{"*", Return::gpu_is_lost}};
  fake.called.clear();
  EXPECT_FALSE(device->read({.energy = true, .activity = false}).ok());
  EXPECT_EQ(fake.called.size(), 2u);
  EXPECT_EQ(fake.called["nvmlEventSetWait_v2"], 1);
  EXPECT_EQ(device->processes().error().code, Errc::gpu_lost);
}

// A process on two MIG instances is one tenant; one that only draws is none.
TEST_F(NvmlDeviceTest, TenantsAreTheProcessesThatCompute) {
  gpu.compute = {{10, 1, 0, 0}, {11, 1, 0, 0}, {11, 1, 1, 0}};
  gpu.graphics = {{12, 1, 0, 0}};
  const auto device = open();
  EXPECT_EQ(device->read({})->tenants, 2);
  EXPECT_EQ(device->read({.processes = false})->tenants, std::nullopt);
  gpu.compute.clear();
  EXPECT_EQ(device->read({})->tenants, 0);
  fake.failing = {{"nvmlDeviceGetComputeRunningProcesses_v2", Return::no_permission}};
  EXPECT_EQ(device->read({})->tenants, std::nullopt);
}

TEST_F(NvmlDeviceTest, ASampleWithNothingInItIsAFailure) {
  const auto device = open();
  fake.failing = {{"*", Return::no_permission}};
  const auto sample = device->read({});
  ASSERT_FALSE(sample.ok());
  EXPECT_EQ(sample.error().code, Errc::query_failed);
  EXPECT_NE(sample.error().message.find("Insufficient Permissions"), std::string::npos);
}

TEST_F(NvmlDeviceTest, SentinelsAreEmpty) {
  gpu.utilization = {kAllOnes, kAllOnes};
  gpu.sm_clock = gpu.memory_clock = kAllOnes;
  gpu.power_usage = gpu.power_average = gpu.power_instant = kAllOnes;
  gpu.temperature = kAllOnes - 40;  // a negative number in disguise
  gpu.energy = gpu.throttle_reasons = ~0ull;
  gpu.slowdown = gpu.power_highest = kAllOnes;
  gpu.memory_clocks = {3201, kAllOnes};
  const auto device = open();
  const Capability& capability = device->capability();
  EXPECT_FALSE(capability.slowdown_temperature);
  EXPECT_FALSE(capability.power_limits);
  EXPECT_FALSE(capability.energy_counter);
  EXPECT_FALSE(capability.instant_power);
  EXPECT_FALSE(capability.averaged_power);
  EXPECT_EQ(capability.memory_clocks, std::vector{Megahertz(3201)});
  EXPECT_FALSE(capability.sm_clocks.empty());

  const Sample sample = *device->read({});
  Sample nothing;
  nothing.source = SampleSource::nvml;
  nothing.time = clock.now();
  nothing.tenants = 0;  // an empty list is an answer
  nothing.modes = sample.modes;
  nothing.card = sample.card;
  EXPECT_EQ(sample, nothing);
}

// Each number that the board cannot have is dropped; the others stay.
TEST_F(NvmlDeviceTest, WhatCannotBeIsEmpty) {
  const auto read_with = [&](auto&& change) {
    const StagedSensors sensors = gpu;
    change();
    const Sample out = *(*open(StagedNvml::functions()))->read({});
    static_cast<StagedSensors&>(gpu) = sensors;
    return out;
  };
  for (const unsigned int milliwatts : {0u, 1'051'000u, 9'900'000u}) {
    EXPECT_FALSE(read_with([&] { gpu.power_usage = milliwatts; }).power_usage);
    EXPECT_FALSE(read_with([&] { gpu.power_instant = milliwatts; }).power_instant);
    EXPECT_FALSE(read_with([&] { gpu.power_average = milliwatts; }).power_average);
  }
  EXPECT_TRUE(read_with([&] { gpu.power_instant = 1'049'000; }).power_instant);
  EXPECT_FALSE(read_with([&] { gpu.sm_clock = 3000; }).sm_clock);
  EXPECT_FALSE(read_with([&] { gpu.memory_clock = 9000; }).memory_clock);
  EXPECT_FALSE(read_with([&] { gpu.temperature = 131; }).temperature);
  EXPECT_FALSE(read_with([&] { gpu.utilization = {127622, 111}; }).gpu_utilisation);
  EXPECT_FALSE(read_with([&] { gpu.utilization = {99, 111}; }).memory_utilisation);
  EXPECT_EQ(read_with([&] { gpu.utilization = {103, 41}; }).gpu_utilisation, percent(100));
}

TEST_F(NvmlDeviceTest, ASlowdownThresholdBelowAnIdleGpuIsNone) {
  for (const unsigned int celsius : {0u, 5u, 59u, 131u}) {
    gpu.slowdown = celsius;
    EXPECT_FALSE(open()->capability().slowdown_temperature) << celsius;
  }
  gpu.slowdown = 60;
  EXPECT_EQ(open()->capability().slowdown_temperature, Celsius(60));
}

TEST_F(NvmlDeviceTest, LimitsThatContradictEachOtherAreNone) {
  gpu.power_lowest = 0;
  EXPECT_FALSE(open()->capability().power_limits);
  gpu.power_lowest = 900'000;
  EXPECT_FALSE(open()->capability().power_limits);
}

// On a laptop the range is reported, and the limit in force is not. A failing call is no evidence.
TEST_F(NvmlDeviceTest, ALimitThatIsNotSupportedCannotBeSet) {
  fake.failing = {{"nvmlDeviceGetPowerManagementLimit", Return::not_supported}};
  EXPECT_FALSE(open()->capability().power_limits);
  fake.failing["nvmlDeviceGetPowerManagementLimit"] = Return::unknown;
  EXPECT_TRUE(open()->capability().power_limits);
}

TEST_F(NvmlDeviceTest, ControlCharactersOfTextsAreReplaced) {
  gpu.name = "NVIDIA\n\x1b[31mH200";
  fake.process_names = {{200, "train\r\x07"}};
  gpu.compute = {{200, 50, 0, 0}};
  const auto device = open();
  EXPECT_EQ(device->capability().id.name, "NVIDIA??[31mH200");
  EXPECT_EQ(device->processes()->at(0).name, "train??");
}

TEST_F(NvmlDeviceTest, AnUnknownGpuIsUnknown) {
  gpu.architecture = kAllOnes;
  gpu.name = "NVIDIA Something New";
  gpu.gpm_supported = 0;
  const auto device = open();
  EXPECT_EQ(device->capability().architecture, Architecture::unknown);
  EXPECT_FALSE(device->capability().flat_voltage_end);
  EXPECT_FALSE(device->capability().activity_counters);
}

// It counts a CPU's joules, too.
TEST_F(NvmlDeviceTest, TheCounterOfAGraceModuleIsNotTheGpus) {
  gpu.name = "NVIDIA GH200 480GB";
  gpu.energy = 5000;
  const auto device = open();
  EXPECT_FALSE(device->capability().energy_counter);
  const auto sample = device->read({.energy = true});
  ASSERT_TRUE(sample.ok());
  EXPECT_FALSE(sample->energy);
  EXPECT_TRUE(sample->power_usage);
  EXPECT_FALSE(device->capability().flat_voltage_end);  // nor is it an H200
}

TEST_F(NvmlDeviceTest, ManyClocks) {
  gpu.graphics_clocks.clear();
  for (unsigned int mhz = 3000; mhz > 0; --mhz) gpu.graphics_clocks.push_back(mhz);
  const auto device = open();
  EXPECT_EQ(device->capability().sm_clocks.size(), 3000u);
  EXPECT_EQ(device->capability().sm_clocks.front(), Megahertz(1));
}

TEST_F(NvmlDeviceTest, ProcessesAreMergedByPid) {
  const auto self = static_cast<unsigned int>(::getpid());
  gpu.compute = {{300, 1000, 0, 0}, {200, 50, 1, 0}, {200, 70, 2, 0}};
  gpu.graphics = {{300, 1000, 0, 0}, {self, ~0ull, 0, 0}};
  gpu.process_utilization = {{200, 9'500'000, 11, 0, 0, 0},
                             {200, 10'000'000, 22, 7, 0, 0},
                             {300, 8'000'000, 99, 0, 0, 0},  // long ago
                             {self, 10'000'000, kAllOnes, 0, 0, 0},
                             {999, 10'000'000, 5, 0, 0, 0}};  // gone by now
  fake.process_names = {{200, "/usr/bin/train"}, {300, "game"}};
  const auto device = open();
  const auto processes = *device->processes();
  ASSERT_EQ(processes.size(), 3u);
  std::map<std::int64_t, GpuProcess> by_pid;
  for (const auto& process : processes) by_pid[process.pid] = process;
  EXPECT_EQ(by_pid[200], (GpuProcess{200, "/usr/bin/train", 120.0, percent(22), percent(7)}));
  EXPECT_EQ(by_pid[300], (GpuProcess{300, "game", 1000.0, std::nullopt}));
  EXPECT_FALSE(by_pid[self].memory_bytes);
  EXPECT_FALSE(by_pid[self].sm_utilisation);
  EXPECT_FALSE(by_pid[self].name.empty());  // from /proc, as NVML does not know it

  // For five seconds the driver is not called again.
  gpu.asked_since = 7;
  const auto soon = *device->processes();
  for (const auto& process : soon)
    EXPECT_EQ(process.sm_utilisation, by_pid[process.pid].sm_utilisation);
  EXPECT_EQ(gpu.asked_since, 7u);

  // Nothing new in the last second: nobody worked.
  clock.advance(std::chrono::seconds(5));
  const auto later = *device->processes();
  EXPECT_EQ(later.size(), 3u);
  for (const auto& process : later) EXPECT_FALSE(process.sm_utilisation);
  EXPECT_EQ(gpu.asked_since, 3'604'000'000u);  // an hour and four seconds
}

// NVML counts a GPU that a device cgroup denies to this process; the GPU is not listed. A GPU that
// fails or hangs may be one of this process's.
TEST(SeenGpus, DeniedGpusAreOfAnotherViewAndSilentOnesMayBeOfThis) {
  StagedNvml fake;
  for (int i = 0; i < 3; ++i) fake.add_gpu();
  fake.failing = {{"open 0", Return::no_permission}, {"open 2", Return::unknown}};
  const std::shared_ptr<const NvmlLibrary> library = *NvmlLibrary::create(StagedNvml::functions());
  const auto seen = *see_nvml_gpus(library, 10s);
  ASSERT_EQ(seen.gpus.size(), 1u);
  EXPECT_EQ(seen.gpus[0].id.index, 1);
  EXPECT_EQ(seen.gpus[0].id.uuid, fake.gpus[1]->uuid);
  EXPECT_EQ(seen.silent, std::vector{2});
}

TEST(SeenGpus, OneThatHangsKeepsNoNameFromTheOthers) {
  StagedNvml fake;
  for (int i = 0; i < 2; ++i) fake.add_gpu();
  static std::promise<void> goes_on;
  static const std::shared_future<void> wait = goes_on.get_future().share();
  NvmlFunctions functions = StagedNvml::functions();
  functions.device_by_index = [](unsigned int index, nvml::Device* device) {
    if (index != 1) return StagedNvml::functions().device_by_index(index, device);
    wait.wait();
    return Return::unknown;
  };
  const std::shared_ptr<const NvmlLibrary> library = *NvmlLibrary::create(functions);
  const auto seen = *see_nvml_gpus(library, 300ms);
  EXPECT_EQ(seen.gpus.size(), 1u);
  EXPECT_EQ(seen.silent, std::vector{1});
  goes_on.set_value();
  while (library.use_count() > 2) std::this_thread::yield();  // ours and that of `seen`
}

TEST(SeenGpus, MigModeIsSeenWithoutInstances) {
  StagedNvml fake;
  fake.add_gpu().mig = 1;
  const std::shared_ptr<const NvmlLibrary> library = *NvmlLibrary::create(StagedNvml::functions());
  const auto seen = *see_nvml_gpus(library, 10s);
  ASSERT_EQ(seen.gpus.size(), 1u);
  EXPECT_TRUE(seen.gpus[0].mig);
  EXPECT_FALSE(seen.gpus[0].instances_unread);
  fake.failing = {{"nvmlDeviceGetMigMode", Return::unknown}};
  EXPECT_TRUE((*see_nvml_gpus(library, 10s)).gpus[0].instances_unread);
}

// Lists of the _v3 calls with `wide_rows` rows of `kRow` bytes.
unsigned int wide_rows = 0;
template <std::size_t kRow>
Return wide_list(nvml::Device, unsigned int* count, nvml::ProcessInfo* out) {
  const unsigned int room = std::exchange(*count, wide_rows);
  if (room < wide_rows) return Return::insufficient_size;
  for (unsigned int i = 0; i < wide_rows; ++i) {
    const nvml::ProcessInfo row{1000 + i, 1u << 20, kAllOnes, kAllOnes};
    auto* const at = reinterpret_cast<char*>(out) + i * kRow;
    std::memset(at, 0, kRow);
    std::memcpy(at, &row, sizeof row);
  }
  return Return::success;
}
Return never_called(nvml::Device, void*) { return Return::unknown; }

// Drivers 535.43 to 535.86 write rows of 32 bytes into the buffer of a caller that expects 24.
TEST_F(NvmlDeviceTest, RowsOfEveryDriverAreReadWhole) {
  const auto lists_all = [&](const NvmlFunctions& functions) {
    for (const unsigned int rows : {1u, 3u, 60u, 64u, 200u}) {
      wide_rows = rows;
      const auto device = *open(functions);
      const auto processes = *device->processes();
      ASSERT_EQ(processes.size(), rows);
      for (unsigned int i = 0; i < rows; ++i) {
        EXPECT_EQ(processes[i].pid, 1000 + i);
        EXPECT_EQ(processes[i].memory_bytes, double(1u << 20));
      }
      EXPECT_EQ(device->read({})->tenants, static_cast<int>(rows));
    }
  };
  NvmlFunctions functions = StagedNvml::functions();
  functions.compute_processes = functions.graphics_processes = nullptr;
  functions.compute_processes_v3 = functions.graphics_processes_v3 = wide_list<24>;
  lists_all(functions);  // a driver of 2022
  functions.protected_memory = functions.process_details = never_called;
  lists_all(functions);  // 535.104 and later
  functions.compute_processes_v3 = functions.graphics_processes_v3 = wide_list<32>;
  functions.process_details = nullptr;
  lists_all(functions);  // 535.43 to 535.86
  functions.process_details = never_called;
  functions.protected_memory = nullptr;
  lists_all(functions);  // unknown rows: the range of PIDs decides
  functions.compute_processes = functions.graphics_processes = wide_list<24>;
  lists_all(functions);  // the _v2 calls are preferred
}

TEST_F(NvmlDeviceTest, ProcessesMayGrowBetweenCalls) {
  const auto device = open();
  gpu.processes_born =
      70;  // more than there is room for at first, and again before the second call
  const auto processes = device->processes();
  ASSERT_TRUE(processes.ok());
  EXPECT_EQ(processes->size(), gpu.compute.size());
  EXPECT_GE(processes->size(), 100u);
}

TEST_F(NvmlDeviceTest, AListThatNeverFitsIsGivenUp) {
  const auto device = open();
  fake.failing = {{"nvmlDeviceGetComputeRunningProcesses_v2", Return::insufficient_size}};
  fake.called.clear();
  EXPECT_EQ(device->processes().error().code, Errc::query_failed);
  EXPECT_EQ(fake.called["nvmlDeviceGetComputeRunningProcesses_v2"], 5);
}

TEST_F(NvmlDeviceTest, ProcessErrors) {
  const auto device = open();
  gpu.compute = {{200, 50, 0, 0}};
  fake.failing = {{"nvmlDeviceGetProcessUtilization", Return::not_found},
                  {"nvmlDeviceGetGraphicsRunningProcesses_v2", Return::not_supported},
                  {"nvmlSystemGetProcessName", Return::no_permission}};
  EXPECT_EQ(device->processes()->size(), 1u);
  fake.failing["nvmlDeviceGetComputeRunningProcesses_v2"] = Return::not_supported;
  EXPECT_EQ(device->processes().error().code, Errc::not_supported);
  fake.failing["nvmlDeviceGetComputeRunningProcesses_v2"] = Return::no_permission;
  EXPECT_EQ(device->processes().error().code, Errc::no_permission);
}

TEST_F(NvmlDeviceTest, OneGpuFailsAndTheOthersGoOn) {
  fake.add_gpu();
  fake.add_gpu();
  fake.failing = {{"open 1", Return::gpu_is_lost}};
  const auto devices = *list_devices(*NvmlLibrary::create(StagedNvml::functions()), clock);
  ASSERT_EQ(devices.opened.size(), 2u);
  EXPECT_EQ(devices.opened[0]->capability().id.index, 0);
  EXPECT_EQ(devices.opened[1]->capability().id.index, 2);
  EXPECT_EQ(devices.opened[1]->capability().id.uuid, fake.gpus[2]->uuid);
  ASSERT_EQ(devices.failed.size(), 1u);
  EXPECT_EQ(devices.failed[0].index, 1);
  EXPECT_EQ(devices.failed[0].error.code, Errc::gpu_lost);
  EXPECT_EQ(devices.failed[0].error.message,
            "GPU 1: nvmlDeviceGetHandleByIndex_v2: GPU is lost (NVML error 15)");
}

// Which of the two a setting would reach, nobody can say.
TEST_F(NvmlDeviceTest, GpusThatShareAUuidAreNotUsed) {
  for (int i = 0; i < 2; ++i) fake.add_gpu();
  fake.gpus[2]->uuid = fake.gpus[0]->uuid;
  const std::shared_ptr<const NvmlLibrary> library = *NvmlLibrary::create(StagedNvml::functions());
  const auto devices = *list_devices(library, clock);
  ASSERT_EQ(devices.opened.size(), 1u);
  EXPECT_EQ(devices.opened[0]->capability().id.index, 1);
  ASSERT_EQ(devices.failed.size(), 2u);
  EXPECT_EQ(devices.failed[0].index, 0);
  EXPECT_EQ(devices.failed[1].index, 2);
  EXPECT_EQ(devices.failed[1].error.message, "GPU 2: the driver gives its UUID " +
                                                 fake.gpus[0]->uuid +
                                                 " to another GPU, too: it is not used");
  const auto seen = *see_nvml_gpus(library, 10s);
  ASSERT_EQ(seen.gpus.size(), 1u);
  EXPECT_EQ(seen.gpus[0].id.index, 1);
  EXPECT_EQ(seen.silent, (std::vector{0, 2}));
}

TEST_F(NvmlDeviceTest, AGpuIsOpenedByItsUuidWithoutACallToAnother) {
  fake.add_gpu();
  fake.failing = {{"open 0", Return::gpu_is_lost}};
  const auto library = *NvmlLibrary::create(StagedNvml::functions());
  const auto device = NvmlDevice::open_uuid(library, fake.gpus[1]->uuid, clock);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->capability().id.index, 1);
  EXPECT_EQ(NvmlDevice::open_uuid(library, "GPU-none", clock).error().code, Errc::not_found);
}

TEST_F(NvmlDeviceTest, CountFails) {
  fake.failing = {{"nvmlDeviceGetCount_v2", Return::unknown}};
  const auto devices = list_devices(*NvmlLibrary::create(StagedNvml::functions()), clock);
  EXPECT_EQ(devices.error().code, Errc::query_failed);
}

TEST_F(NvmlDeviceTest, TheLibraryLivesAsLongAsItsDevices) {
  {
    const auto device = open();
    EXPECT_EQ(fake.initialised, 1);
  }
  EXPECT_EQ(fake.initialised, 0);
  EXPECT_EQ(fake.gpm_samples, 0);
}

// --- writes --------------------------------------------------------------------------------------

TEST_F(NvmlDeviceTest, KnobsReachTheDriverInItsUnits) {
  const auto device = open();
  EXPECT_TRUE(device->lock_sm_clock(345_MHz, 1965_MHz).ok());
  EXPECT_TRUE(device->set_power_limit(412.5_W).ok());
  EXPECT_TRUE(device->reset_sm_clock().ok());
  EXPECT_EQ(gpu.writes, (std::vector<std::string>{"345..1965", "412500 mW", "reset"}));
  EXPECT_EQ(*device->settings(), (GpuSettings{412.5_W, 1830_MHz, 3201_MHz}));
}

TEST_F(NvmlDeviceTest, AGpuThatBecameAnotherIsNotWrittenTo) {
  const auto device = open();
  gpu.uuid = "GPU-another";
  for (const auto& refused : {device->lock_sm_clock(345_MHz, 345_MHz), device->reset_sm_clock(),
                              device->set_power_limit(400_W)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::gpu_lost);
    EXPECT_NE(refused.error().message.find("GPU-another"), std::string::npos);
  }
  EXPECT_TRUE(gpu.writes.empty());
}

TEST_F(NvmlDeviceTest, BadValuesDoNotReachTheDriver) {
  const auto device = open();
  EXPECT_EQ(device->lock_sm_clock(346_MHz, 1980_MHz).error().code, Errc::invalid_argument);
  EXPECT_EQ(device->lock_sm_clock(1980_MHz, 345_MHz).error().code, Errc::invalid_argument);
  const auto limit = device->set_power_limit(100_W);
  EXPECT_EQ(limit.error().code, Errc::invalid_argument);
  EXPECT_NE(limit.error().message.find("200 to 700 W"), std::string::npos);
  EXPECT_TRUE(gpu.writes.empty());
}

TEST_F(NvmlDeviceTest, WritesFailAsTheDriverSays) {
  const auto device = open();
  fake.failing = {{"nvmlDeviceSetGpuLockedClocks", Return::no_permission},
                  {"nvmlDeviceResetGpuLockedClocks", Return::gpu_is_lost},
                  {"nvmlDeviceSetPowerManagementLimit", Return::not_supported}};
  EXPECT_EQ(device->lock_sm_clock(345_MHz, 345_MHz).error().code, Errc::no_permission);
  EXPECT_EQ(device->reset_sm_clock().error().code, Errc::gpu_lost);
  EXPECT_EQ(device->set_power_limit(400_W).error().code, Errc::not_supported);
}

TEST_F(NvmlDeviceTest, AChangedMigModeIsNoticedWithTheDearFields) {
  const auto device = open();
  EXPECT_TRUE(device->read({}).ok());
  gpu.mig = 1;
  EXPECT_TRUE(device->read({.energy = false}).ok());
  const auto read = device->read({});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Errc::gpu_lost);
  EXPECT_NE(read.error().message.find("MIG"), std::string::npos);
  EXPECT_FALSE(device->read({.energy = false}).ok());  // until it is opened anew
}

}  // namespace
}  // namespace derate
