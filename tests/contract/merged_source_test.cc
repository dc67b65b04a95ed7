// The seam for a second source of fields: one that merges into a GPU's sample and never writes, as
// DCGM will be. In this file alone, on a simulated GPU; it keeps the contract of every back end.
#include <utility>

#include "contract.h"
#include "device/backend.h"
#include "device/sim/sim_device.h"
#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// Fields as a source has them: how old they are goes with them.
struct Fields {
  Instant taken{};
  Activity activity;
};

class FieldSource {
 public:
  virtual ~FieldSource() = default;
  // The newest reading; empty before the first, or when the source is gone.
  virtual std::optional<Fields> newest() = 0;
};

// A GPU of a main source whose empty fields come from others, in their order. Who writes, lists and
// fails is the main source alone.
class MergedSource final : public TelemetrySource {
 public:
  static constexpr Duration kOldest = 1s;

  MergedSource(std::unique_ptr<TelemetrySource> main, std::vector<FieldSource*> others)
      : main_(std::move(main)), others_(std::move(others)), capability_(main_->capability()) {
    capability_.activity_counters = true;
  }
  const Capability& capability() const override { return capability_; }
  Result<std::vector<GpuProcess>> processes() override { return main_->processes(); }
  Result<Tenancy> tenancy() override {
    Tenancy out = TRY(main_->tenancy());
    if (std::exchange(surveyed_, true)) merge_into(out.board);  // the first covers no time
    return out;
  }
  Result<Sample> read(const ReadPlan& plan) override {
    Sample sample = TRY(main_->read(plan));
    if (plan.activity) merge_into(sample);
    return sample;
  }

 private:
  void merge_into(Sample& sample) {
    for (FieldSource* other : others_) {
      const auto fields = other->newest();
      if (!fields || sample.time - fields->taken > kOldest) continue;
      for (const ActivityShare& share : activity_shares())
        if (auto& to = sample.activity.*(share.member); !to) to = fields->activity.*(share.member);
    }
  }

  std::unique_ptr<TelemetrySource> main_;
  std::vector<FieldSource*> others_;
  Capability capability_;
  bool surveyed_ = false;
};

// What a profiling library reads on a GPU without GPM: two shares, every half second.
class Profiling final : public FieldSource {
 public:
  explicit Profiling(const Clock& clock) : clock_(clock) {}
  std::optional<Fields> newest() override {
    if (!stopped && (!last_ || clock_.now() - last_->taken >= 500ms)) {
      last_.emplace();
      last_->taken = clock_.now();
      last_->activity.sm = Fraction(0.9);
      last_->activity.dram = Fraction(0.3);
    }
    return last_;
  }
  bool stopped = false;

 private:
  const Clock& clock_;
  std::optional<Fields> last_;
};

struct MergedGpu final : Subject {
  explicit MergedGpu(const char* chip) : sim(chip_named(chip), {}) {
    sim.start(all_workloads(sim.chip()).front(), Duration::zero());
    auto device = std::make_unique<SimDevice>(sim, clock, 0);
    open.control = device.get();
    open.source =
        std::make_unique<MergedSource>(std::move(device), std::vector<FieldSource*>{&profiling});
    clock.advance(1h);
    pass(0s);
    pass(2s);  // from here on every sensor has had its first renewal
  }
  TelemetrySource& source() override { return *open.source; }
  ClockControl* control() override { return open.control; }
  SampleSource tag() const override { return SampleSource::simulated; }
  Instant now() const override { return clock.now(); }
  void pass(Duration time) override {
    clock.advance(time);
    (void)source().read({.energy = false, .activity = false}).ok();
  }

  FakeClock clock;
  SimGpu sim;
  Profiling profiling{clock};
  OpenGpu open;
};

INSTANTIATE_TEST_SUITE_P(Merged, Contract,
                         testing::Values(ContractCase{
                             "sim_with_a_second_source",
                             [] { return std::make_unique<MergedGpu>("A100-SXM4"); }}),
                         case_name);

TEST(MergedSource, AFieldThatTheGpuLacksComesFromTheOtherSource) {
  MergedGpu gpu("A100-SXM4");
  ASSERT_FALSE(sim_capability(gpu.sim.chip(), 0).activity_counters);
  gpu.pass(1s);
  const Sample sample = *gpu.source().read({});
  EXPECT_EQ(sample.activity.sm, Fraction(0.9));
  EXPECT_EQ(sample.activity.dram, Fraction(0.3));
  EXPECT_FALSE(sample.activity.tensor);
  EXPECT_TRUE(sample.power_usage && sample.sm_clock);
}

TEST(MergedSource, TheGpusOwnFieldStays) {
  MergedGpu gpu("H200");
  gpu.pass(2s);
  const Sample sample = *gpu.source().read({});
  ASSERT_TRUE(sample.activity.sm);
  EXPECT_NE(sample.activity.sm, Fraction(0.9));
}

TEST(MergedSource, AnOldFieldIsMissing) {
  MergedGpu gpu("A100-SXM4");
  gpu.pass(1s);
  ASSERT_TRUE(gpu.source().read({})->activity.sm);
  gpu.profiling.stopped = true;
  gpu.pass(MergedSource::kOldest);
  EXPECT_TRUE(gpu.source().read({})->activity.sm);
  gpu.pass(1ms);
  EXPECT_EQ(gpu.source().read({})->activity, Activity{});
}

TEST(MergedSource, WritesReachTheGpuAsBefore) {
  MergedGpu gpu("A100-SXM4");
  const Megahertz lowest = gpu.source().capability().sm_clocks.front();
  ASSERT_TRUE(gpu.control()->lock_sm_clock(lowest, lowest).ok());
  gpu.pass(1s);
  EXPECT_EQ(gpu.source().read({})->sm_clock, lowest);
}

}  // namespace
}  // namespace derate
