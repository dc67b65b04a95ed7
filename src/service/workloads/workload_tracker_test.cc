#include "service/workloads/workload_tracker.h"

#include <gtest/gtest.h>

#include "device/sim/sim_device.h"
#include "service/answers/attribution_service.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A source whose lists only come once they are begun, as those of real GPUs.
class LazySource final : public TelemetrySource {
 public:
  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan&) override { return Sample{}; }
  Result<std::vector<GpuProcess>> processes() override { return std::vector<GpuProcess>(); }
  void start_processes() override { listing = true; }
  std::optional<Result<std::vector<GpuProcess>>> poll_processes() override {
    ++polls;
    if (!std::exchange(listing, false)) return std::nullopt;
    return processes();
  }
  void start_tenancy() override { splitting = true; }
  std::optional<Result<Tenancy>> poll_tenancy() override {
    if (mute || !std::exchange(splitting, false)) return std::nullopt;
    ++answered;
    return Tenancy{};
  }
  bool listing = false, splitting = false, mute = false;
  int polls = 0, answered = 0;

 private:
  Capability capability_ = sim_capability(sim_chips().front(), 0);
};

// A pause and a resume free a source and make another, at the same address if memory wants it.
TEST(Sources, AreTheSameByOpeningAndNotByAddress) {
  FakeClock clock;
  LazySource source;
  AttributionService service(clock,
                             {.name = [](const auto&...) { return TenantNames(); },
                              .where = BackgroundWorker::Where::at_once},
                             attribution_service_rules(Settings{}));
  const AttributionService::Gpu first[] = {{&source, 1}}, second[] = {{&source, 2}};
  source.mute = true;
  service.step(first);
  // What was begun of the first is gone with it.
  source.mute = source.splitting = false;
  clock.sleep_until(clock.now() + 2s);
  service.step(second);
  EXPECT_EQ(source.answered, 1);
}

TEST(Sources, AListThatWasBegunOfAnotherIsNotWaitedFor) {
  FakeClock clock;
  LazySource source;
  WorkloadTracker tracker(clock, {.where = BackgroundWorker::Where::at_once});
  const WorkloadTracker::Gpu first[] = {{&source, 1}}, second[] = {{&source, 2}};
  tracker.begin_listing(first);
  source.listing = false;  // the first has gone, and what was begun of it
  (void)tracker.update(second);
  EXPECT_EQ(source.polls, 0);
}

}  // namespace
}  // namespace derate
