#include "device/nvml/gpm.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <thread>

#include "fakenvml/test_nvml.h"

namespace derate {
namespace {

using nvml::Return;
using namespace std::chrono_literals;

struct GpmTest : ::testing::Test {
  GpmTest() : gpu(fake.add_gpu()), library(*NvmlLibrary::create(StagedNvml::functions())) {}
  Result<std::unique_ptr<Gpm>> create() { return Gpm::create(*library, gpu.handle); }
  static Instant at(Duration d) { return Instant(d); }

  StagedNvml fake;
  StagedGpu& gpu;
  std::shared_ptr<const NvmlLibrary> library;
};

TEST_F(GpmTest, ReadsAfterAFullWindow) {
  const auto gpm = *create();
  EXPECT_EQ(*gpm->read(at(0ms)), Activity{});
  const Activity activity = *gpm->read(at(110ms));
  EXPECT_EQ(activity.graphics, percent(100));
  EXPECT_EQ(activity.sm, percent(90));
  EXPECT_EQ(activity.occupancy, percent(40));
  EXPECT_EQ(activity.integer, percent(10));
  EXPECT_EQ(activity.tensor, percent(55));
  EXPECT_EQ(activity.dram, percent(30));
  EXPECT_EQ(activity.fp64, percent(1));
  EXPECT_EQ(activity.fp32, percent(2));
  EXPECT_EQ(activity.fp16, percent(3));
  EXPECT_EQ(activity.pcie_tx, BytesPerSecond(4 * 1048576.0));
  EXPECT_EQ(activity.pcie_rx, BytesPerSecond(5 * 1048576.0));
}

TEST_F(GpmTest, AShortWindowKeepsTheOlderSample) {
  const auto gpm = *create();
  ASSERT_TRUE(gpm->read(at(0ms)).ok());
  EXPECT_EQ(*gpm->read(at(50ms)), Activity{});
  EXPECT_EQ(*gpm->read(at(94ms)), Activity{});
  EXPECT_EQ(fake.called["nvmlGpmSampleGet"], 1);  // no sample was taken for nothing
  EXPECT_NE(*gpm->read(at(120ms)), Activity{});
  EXPECT_EQ(*gpm->read(at(150ms)), Activity{});
  EXPECT_NE(*gpm->read(at(240ms)), Activity{});
  using Windows = std::vector<std::pair<int, int>>;
  EXPECT_EQ(fake.gpm_windows, (Windows{{0, 1}, {1, 2}}));
}

RC_GTEST_FIXTURE_PROP(GpmTest, WindowsAreLongEnoughAndSeamless, ()) {
  const auto gpm = *create();
  Duration now = 0ms;
  std::optional<Duration> last;
  int windows = 0;
  for (const int step_ms : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 300))) {
    now += std::chrono::milliseconds(step_ms);
    const bool due = last && now - *last >= kGpmWindow;
    RC_ASSERT((*gpm->read(at(now)) != Activity{}) == due);
    if (due) ++windows;
    if (due || !last) last = now;
  }
  RC_ASSERT(static_cast<int>(fake.gpm_windows.size()) == windows);
  for (int i = 0; i < windows; ++i) RC_ASSERT(fake.gpm_windows[i] == std::pair(i, i + 1));
}

// DCGM's blank values and activities of 1.75 are dropped; a value a little above 1 becomes 1.
TEST_F(GpmTest, AShareFarAboveOneIsEmpty) {
  gpu.gpm_values[2] = 175;
  gpu.gpm_values[3] = 1.4e14;
  gpu.gpm_values[5] = 104;
  gpu.gpm_values[20] = 1.4e12;
  const auto gpm = *create();
  ASSERT_TRUE(gpm->read(at(0ms)).ok());
  const Activity activity = *gpm->read(at(200ms));
  EXPECT_FALSE(activity.sm || activity.occupancy || activity.pcie_tx);
  EXPECT_EQ(activity.tensor, percent(100));
  EXPECT_TRUE(activity.dram && activity.pcie_rx);
}

TEST_F(GpmTest, NotANumberIsEmptyAndSoIsAMetricThatFails) {
  gpu.gpm_values[10] = std::nan("");
  gpu.gpm_codes[5] = Return::not_supported;
  gpu.gpm_values[20] = std::numeric_limits<double>::infinity();
  const auto gpm = *create();
  ASSERT_TRUE(gpm->read(at(0ms)).ok());
  const Activity activity = *gpm->read(at(200ms));
  EXPECT_FALSE(activity.dram);
  EXPECT_FALSE(activity.tensor);
  EXPECT_FALSE(activity.pcie_tx);
  EXPECT_EQ(activity.sm, percent(90));
}

TEST_F(GpmTest, AWindowOfZerosIsNoSample) {
  for (auto& [id, value] : gpu.gpm_values) value = id == 10 ? std::nan("") : 0;
  const auto gpm = *create();
  ASSERT_TRUE(gpm->read(at(0ms)).ok());
  EXPECT_EQ(*gpm->read(at(200ms)), Activity{});
  gpu.gpm_values[2] = 50;  // one that works: the other zeros are true
  const Activity activity = *gpm->read(at(400ms));
  EXPECT_EQ(activity.sm, percent(50));
  EXPECT_EQ(activity.fp64, percent(0));
  EXPECT_FALSE(activity.dram);
}

TEST_F(GpmTest, AFailedCallIsAnErrorAndTheNextWindowWorks) {
  const auto gpm = *create();
  ASSERT_TRUE(gpm->read(at(0ms)).ok());
  fake.failing["nvmlGpmSampleGet"] = Return::unknown;
  EXPECT_EQ(gpm->read(at(200ms)).error().code, Errc::query_failed);
  fake.failing.clear();
  EXPECT_NE(*gpm->read(at(300ms)), Activity{});  // since 0 ms

  fake.failing["nvmlGpmMetricsGet"] = Return::gpu_is_lost;
  EXPECT_EQ(gpm->read(at(500ms)).error().code, Errc::gpu_lost);
  fake.failing.clear();
  EXPECT_NE(*gpm->read(at(700ms)), Activity{});  // since 500 ms
  EXPECT_EQ(fake.gpm_windows.back(), std::pair(2, 3));
}

TEST_F(GpmTest, IsNotThereOnOlderGpus) {
  gpu.gpm_supported = 0;
  EXPECT_EQ(create().error().code, Errc::not_supported);
  gpu.gpm_supported = 1;
  fake.failing["nvmlGpmQueryDeviceSupport"] = Return::not_supported;
  EXPECT_EQ(create().error().code, Errc::not_supported);
}

TEST_F(GpmTest, FreesItsBuffers) {
  {
    const auto gpm = create();
    ASSERT_TRUE(gpm.ok());
    EXPECT_EQ(fake.gpm_samples, 2);
  }
  EXPECT_EQ(fake.gpm_samples, 0);
  fake.failing["nvmlGpmSampleAlloc"] = Return::unknown;
  EXPECT_FALSE(create().ok());
  EXPECT_EQ(fake.gpm_samples, 0);
}

// A library whose GPM calls may not overlap. A sample of the GPU `hung` does not come back, where
// `hangs`, until it is told to.
struct FragileGpm {
  FragileGpm() { alive = this; }
  ~FragileGpm() { alive = nullptr; }
  FragileGpm(const FragileGpm&) = delete;
  FragileGpm& operator=(const FragileGpm&) = delete;

  std::atomic<int> inside = 0, overlaps = 0, samples = 0;
  std::atomic<bool> hangs = false;
  std::promise<void> begun, come_back;

  static Return call() {
    if (++alive->inside > 1) ++alive->overlaps;
    std::this_thread::yield();
    --alive->inside;
    return Return::success;
  }
  static NvmlFunctions functions();
  static inline FragileGpm* alive = nullptr;
  static inline const nvml::Device hung = reinterpret_cast<nvml::Device>(1),
                                   sound = reinterpret_cast<nvml::Device>(2);
};

NvmlFunctions FragileGpm::functions() {
  NvmlFunctions out = StagedNvml::functions();
  out.gpm_support = [](nvml::Device, nvml::GpmSupport* support) {
    support->supported = 1;
    return call();
  };
  out.gpm_alloc = [](nvml::GpmSample* sample) {
    *sample = reinterpret_cast<nvml::GpmSample>(++alive->samples);
    return call();
  };
  out.gpm_free = [](nvml::GpmSample) {
    --alive->samples;
    return call();
  };
  out.gpm_sample = [](nvml::Device device, nvml::GpmSample) {
    if (device == hung && alive->hangs.exchange(false)) {
      alive->begun.set_value();
      alive->come_back.get_future().wait();
    }
    return call();
  };
  out.gpm_metrics = [](nvml::GpmMetrics* query) {
    for (unsigned int i = 0; i < query->count; ++i) query->metrics[i].value = 50;
    return call();
  };
  return out;
}

struct GpmTurnTest : ::testing::Test {
  std::unique_ptr<Gpm> create(nvml::Device device, const GpmOptions& options = {}) {
    return *Gpm::create(*library, device, options);
  }

  StagedNvml fake;
  FragileGpm gpm;
  std::shared_ptr<const NvmlLibrary> library = *NvmlLibrary::create(FragileGpm::functions());
};

TEST_F(GpmTurnTest, CallsOfTwoGpusDoNotOverlap) {
  // No call hangs here, however long the machine lets a thread wait.
  const auto read = [&](nvml::Device device) {
    for (int i = 0; i < 10; ++i) {
      const auto mine = create(device, {.patience = 1h});
      for (int at = 0; at < 20; ++at) EXPECT_TRUE(mine->read(Instant(at * 100ms)).ok());
    }
  };
  std::thread other(read, FragileGpm::hung);
  read(FragileGpm::sound);
  other.join();
  EXPECT_EQ(gpm.overlaps, 0);
  EXPECT_EQ(gpm.samples, 0);
}

TEST_F(GpmTurnTest, ACallThatHangsDoesNotHoldTheOtherGpu) {
  auto lost = create(FragileGpm::hung), other = create(FragileGpm::sound);
  auto third = create(FragileGpm::sound);
  ASSERT_TRUE(other->read(Instant(0ms)).ok());
  gpm.hangs = true;
  std::thread hung([&] { EXPECT_TRUE(lost->read(Instant(0ms)).ok()); });
  gpm.begun.get_future().wait();
  for (int at = 1; at < 50; ++at) EXPECT_EQ(*other->read(Instant(at * 100ms)), Activity{});
  EXPECT_EQ(Gpm::create(*library, FragileGpm::sound).error().code, Errc::busy);
  third.reset();
  EXPECT_EQ(gpm.samples, 6);  // nobody knows whether they could be freed now
  gpm.come_back.set_value();
  hung.join();
  EXPECT_EQ((*other->read(Instant(5100ms))).sm, percent(50));
}

}  // namespace
}  // namespace derate
