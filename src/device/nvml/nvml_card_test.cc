#include "device/nvml/nvml_card.h"

#include <gtest/gtest.h>

#include "device/nvml/nvml_device.h"
#include "fakenvml/test_nvml.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using nvml::Return;

struct NvmlCardTest : ::testing::Test {
  NvmlCardTest() : gpu(fake.add_gpu()), device(*NvmlDevice::open(library, 0, clock)) {}
  CardReading read_anew() {
    clock.advance(5s);
    return *device->read({})->card;
  }

  StagedNvml fake;
  StagedGpu& gpu;
  FakeClock clock;
  std::shared_ptr<const NvmlLibrary> library = *NvmlLibrary::create(StagedNvml::functions());
  std::unique_ptr<NvmlDevice> device;
};

TEST_F(NvmlCardTest, ReadsTheCard) {
  gpu.compute = {{.pid = 7, .used_memory = 3'000'000'000}};
  const CardReading card = read_anew();
  EXPECT_EQ(card.taken, clock.now());
  EXPECT_EQ(card.memory_used_bytes, 3e9);
  EXPECT_GT(card.memory_total_bytes, 140e9);
  EXPECT_EQ(card.pcie_generation, 5);
  EXPECT_EQ(card.pcie_lanes, 16);
  EXPECT_EQ(card.pcie_most_generation, 5);
  EXPECT_EQ(card.pcie_most_lanes, 16);
  EXPECT_FALSE(card.fan);
  EXPECT_EQ(card.encoder, Fraction(0));
  EXPECT_EQ(card.decoder, Fraction(0));
  EXPECT_EQ(card.ecc_corrected, 0u);
  EXPECT_EQ(card.ecc_uncorrected, 0u);
  EXPECT_EQ(card.xids, XidLog{});
}

TEST_F(NvmlCardTest, IsReadEach5Seconds) {
  const SharedCard first = device->read({})->card;
  clock.advance(4900ms);
  EXPECT_EQ(device->read({})->card->taken, first->taken);
  clock.advance(100ms);
  EXPECT_EQ(device->read({})->card->taken, clock.now());
}

// The older call counts what the driver keeps for itself.
TEST_F(NvmlCardTest, OlderDriversReportMemoryByAnotherCall) {
  gpu.compute = {{.pid = 7, .used_memory = 3'000'000'000}};
  fake.failing = {{"nvmlDeviceGetMemoryInfo_v2", Return::argument_version_mismatch}};
  const CardReading card = read_anew();
  EXPECT_GT(card.memory_used_bytes, 3e9);
  EXPECT_LT(card.memory_used_bytes, 4e9);
}

TEST_F(NvmlCardTest, EachCallFailingAloneEmptiesItsFieldsAndNoOther) {
  const CardReading whole = read_anew();
  const std::map<std::string, void (*)(CardReading&)> emptied{
      {"nvmlDeviceGetMemoryInfo*",
       [](CardReading& c) { c.memory_used_bytes = c.memory_total_bytes = std::nullopt; }},
      {"nvmlDeviceGetCurrPcieLinkGeneration", [](CardReading& c) { c.pcie_generation.reset(); }},
      {"nvmlDeviceGetCurrPcieLinkWidth", [](CardReading& c) { c.pcie_lanes.reset(); }},
      {"nvmlDeviceGetMaxPcieLinkGeneration",
       [](CardReading& c) { c.pcie_most_generation.reset(); }},
      {"nvmlDeviceGetMaxPcieLinkWidth", [](CardReading& c) { c.pcie_most_lanes.reset(); }},
      {"nvmlDeviceGetEncoderUtilization", [](CardReading& c) { c.encoder.reset(); }},
      {"nvmlDeviceGetDecoderUtilization", [](CardReading& c) { c.decoder.reset(); }},
      {"nvmlDeviceGetFieldValues",
       [](CardReading& c) { c.ecc_corrected = c.ecc_uncorrected = std::nullopt; }},
      {"nvmlEventSetWait_v2", [](CardReading&) {}},
  };
  for (const auto& [call, empty] : emptied) {
    fake.failing = {{call, Return::unknown}};
    CardReading expected = whole;
    empty(expected);
    CardReading read = read_anew();
    read.taken = whole.taken;
    EXPECT_EQ(read, expected) << call;
  }
}

// On an H200 such a call takes longer than all others together.
TEST_F(NvmlCardTest, WhatIsNotSupportedIsNotAskedAgain) {
  (void)read_anew();
  EXPECT_EQ(fake.called["nvmlDeviceGetFanSpeed"], 1);
  (void)read_anew();
  EXPECT_EQ(fake.called["nvmlDeviceGetFanSpeed"], 1);
  EXPECT_EQ(fake.called["nvmlDeviceGetCurrPcieLinkWidth"], 2);
}

struct XidTest : ::testing::Test {
  XidTest() {
    served.pass(1s);
    (void)device->read({});  // from now on it listens
  }
  void report(unsigned int number, unsigned int at = 0) {
    fakenvml::Request request;
    request.op = fakenvml::Op::xid;
    request.gpu = at;
    request.a = number;
    CHECK(served.ask(request).code == 0);
  }

  fakenvml::Served served{{*find_sim_chip("H200"), *find_sim_chip("RTX5060Ti")}};
  std::shared_ptr<const NvmlLibrary> library = *NvmlLibrary::load(fakenvml::kLibraryPath);
  std::unique_ptr<NvmlDevice> device = *NvmlDevice::open(library, 0, served.clock());
};

TEST_F(XidTest, EachIsCountedOnce) {
  report(31);
  report(79);
  report(13, 1);  // of the other GPU
  for (int i = 0; i < 2; ++i) {
    served.pass(5s);
    const SharedCard card = device->read({})->card;
    ASSERT_TRUE(card->xids && card->xids->card.last && card->xids->programs.last);
    EXPECT_EQ(card->xids->card.count, 1u);
    EXPECT_EQ(card->xids->card.last->number, 79);
    EXPECT_EQ(card->xids->programs.count, 1u);
    EXPECT_EQ(card->xids->programs.last->number, 31);
  }
}

TEST_F(XidTest, ALostGpusErrorNamesIt) {
  report(79);
  report(45);  // the driver ends the programs
  fakenvml::Request lost;
  lost.op = fakenvml::Op::gpu_fault;
  lost.gpu = 0;
  lost.a = static_cast<std::uint32_t>(fakenvml::GpuFault::lost);
  ASSERT_EQ(served.ask(lost).code, 0u);
  served.pass(100ms);
  const auto sample = device->read({});
  ASSERT_FALSE(sample.ok());
  EXPECT_EQ(sample.error().code, Errc::gpu_lost);
  EXPECT_NE(sample.error().message.find("Xid 79 (the GPU has fallen off the bus)"),
            std::string::npos)
      << sample.error().message;
}

TEST_F(XidTest, ADesktopCardHasAFan) {
  const auto desktop = *NvmlDevice::open(library, 1, served.clock());
  const SharedCard card = desktop->read({})->card;
  ASSERT_TRUE(card->fan);
  EXPECT_GE(*card->fan, percent(30));
}

}  // namespace
}  // namespace derate
