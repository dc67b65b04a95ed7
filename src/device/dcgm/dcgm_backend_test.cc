#include "device/dcgm/dcgm_backend.h"

#include <gtest/gtest.h>

#include "device/dcgm/dcgm_source.h"

namespace derate {
namespace {

// A GPU with or without activity counters of its own.
class BackendGpu final : public TelemetrySource {
 public:
  explicit BackendGpu(bool counters) { capability_.activity_counters = counters; }
  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan&) override { return Sample{}; }
  Result<std::vector<GpuProcess>> processes() override { return std::vector<GpuProcess>{}; }

 private:
  Capability capability_;
};

bool reads_dcgm(DcgmUse use, bool counters) {
  static const SystemClock clock;
  Backend inner;
  inner.open = [counters](const GpuId&) -> Result<OpenGpu> {
    OpenGpu out;
    out.source = std::make_unique<BackendGpu>(counters);
    return out;
  };
  const auto connection = std::make_shared<DcgmConnection>(DcgmChoice{.use = use}, clock);
  const auto gpu = with_dcgm(std::move(inner), connection).open(GpuId{});
  return dynamic_cast<DcgmSource*>(gpu->source.get()) != nullptr;
}

TEST(DcgmBackend, OnlyAGpuWithoutCountersOfItsOwnHasThoseOfTheEngine) {
  EXPECT_TRUE(reads_dcgm(DcgmUse::shared, false));
  EXPECT_TRUE(reads_dcgm(DcgmUse::all, false));
  EXPECT_FALSE(reads_dcgm(DcgmUse::off, false));
  EXPECT_FALSE(reads_dcgm(DcgmUse::all, true));
}

TEST(DcgmBackend, AllGpusOfAProcessShareOneReader) {
  static const SystemClock clock;
  DcgmConnection connection({}, clock);
  EXPECT_EQ(connection.reader(), connection.reader());
}

}  // namespace
}  // namespace derate
