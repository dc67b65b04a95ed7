#include "device/dcgm/dcgm_source.h"

#include <gtest/gtest.h>

#include <chrono>

#include "device/dcgm/dcgm_listeners.h"
#include "device/dcgm/test_dcgm.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A GPU whose own sensors have what the test says.
class Inner final : public TelemetrySource {
 public:
  explicit Inner(const Clock& clock) : clock_(clock) { capability_.id.uuid = "GPU-a"; }
  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan&) override {
    Sample out = next;
    out.time = clock_.now();
    out.source = SampleSource::nvml;
    return out;
  }
  Result<std::vector<GpuProcess>> processes() override { return std::vector<GpuProcess>{}; }
  Result<Tenancy> tenancy() override {
    Tenancy out;
    out.board = *read({});
    out.mig = true;
    out.processes = running;
    for (const int id : {1, 2}) {
      GpuInstance instance;
      instance.id = id;
      instance.profile = profile;
      out.instances.push_back(instance);
    }
    return out;
  }

  Sample next;
  std::vector<GpuProcess> running;
  std::string profile = "1g.10gb";

 private:
  const Clock& clock_;
  Capability capability_;
};

// On real time, as a thread reads the engine.
struct SourceBench {
  SourceBench() {
    engine.gpus = {{.id = 7,
                    .uuid = "GPU-a",
                    .busy = 0.25,
                    .instances = {1},
                    .groups = TestDcgm::one_group()}};
    reader = *DcgmReader::create(
        DcgmUse::all, [this] { return connect(); }, clock);
    auto owned = std::make_unique<Inner>(clock);
    inner = owned.get();
    inner->next.gpu_utilisation = Fraction(0.9);
    source = std::make_unique<DcgmSource>(std::move(owned), reader);
  }
  ~SourceBench() { engine.go_on(); }
  Result<DcgmWatcher::Connected> connect() {
    auto connected = TRY(DcgmEngine::connect(TRY(DcgmLibrary::create(engine.functions())),
                                             usual_dcgm_addresses().front()));
    return DcgmWatcher::Connected{std::move(connected), usual_dcgm_addresses().front()};
  }
  // Reads every 20 ms until a reading has activity.
  std::optional<Sample> wait_for_activity(Duration patience = 10s) {
    const Instant end = clock.now() + patience;
    while (clock.now() < end) {
      const auto sample = source->read({});
      if (has(*sample, Field::activity)) return *sample;
      clock.sleep_until(clock.now() + 20ms);
    }
    return std::nullopt;
  }

  SystemClock clock;
  TestDcgm engine{clock};
  std::shared_ptr<DcgmReader> reader;
  Inner* inner = nullptr;
  std::unique_ptr<DcgmSource> source;
};

TEST(DcgmSource, FillsTheActivityOfAGpuThatHasNoneAndNamesItsSource) {
  SourceBench bench;
  const auto sample = bench.wait_for_activity();
  ASSERT_TRUE(sample);
  EXPECT_NEAR(sample->activity.sm.value().value(), 0.25, 0.02);
  const FieldRead read = read_of(*sample, Field::activity);
  EXPECT_EQ(read.source, "dcgm");
  EXPECT_LE(sample->time - read.taken, 2 * kDcgmQuickPeriod);
  // Each period is given once: no reading has the time of another.
  EXPECT_LT(read.taken, read_of(*bench.wait_for_activity(), Field::activity).taken);
  EXPECT_FALSE(has(*bench.source->read({.activity = false}), Field::activity));
}

TEST(DcgmSource, OwnCountersGoFirst) {
  SourceBench bench;
  bench.inner->next.activity.sm = Fraction(0.75);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(bench.source->read({})->activity.sm, Fraction(0.75));
  bench.engine.change([](TestDcgm& engine) { EXPECT_EQ(engine.calls, 0); });
}

TEST(DcgmSource, ZerosOfAGpuAtWorkAreNone) {
  SourceBench bench;
  ASSERT_TRUE(bench.wait_for_activity());
  bench.engine.change([](TestDcgm& engine) { engine.faults.zeros = true; });
  bench.clock.sleep_until(bench.clock.now() + 300ms);
  EXPECT_FALSE(bench.wait_for_activity(500ms));
}

TEST(DcgmSource, AGpuThatDoesNotWorkIsNotMeasured) {
  SourceBench bench;
  bench.inner->next.gpu_utilisation = Fraction(0);
  EXPECT_FALSE(bench.wait_for_activity(300ms));
  bench.engine.change([](TestDcgm& engine) { EXPECT_EQ(engine.calls, 0); });
}

TEST(DcgmSource, AnEngineThatHangsCostsAReadingNothingAndItsValuesEnd) {
  SourceBench bench;
  ASSERT_TRUE(bench.wait_for_activity());
  bench.engine.hang();
  const Instant begin = bench.clock.now();
  std::optional<Instant> last;
  while (bench.clock.now() - begin < 1s) {
    const auto sample = bench.source->read({});
    if (has(*sample, Field::activity)) {
      last = read_of(*sample, Field::activity).taken;
      EXPECT_LE(sample->time - *last, 2 * kDcgmQuickPeriod);
    }
    bench.clock.sleep_until(bench.clock.now() + 10ms);
  }
  EXPECT_FALSE(bench.wait_for_activity(100ms));
  while (bench.reader->status("GPU-a").problem.empty())
    bench.clock.sleep_until(bench.clock.now() + 50ms);
  bench.engine.go_on();
  EXPECT_TRUE(bench.wait_for_activity());
}

// A change of the period costs the engine a new watch and us a period's values.
TEST(DcgmSource, ReadingsAndSurveysNeedOnePeriod) {
  SourceBench bench;
  ASSERT_TRUE(bench.wait_for_activity());
  int before = 0, after = 0;
  bench.engine.change([&](TestDcgm& engine) { before = engine.watches; });
  for (int i = 0; i < 4; ++i) {  // as seldom as an observer reads, after readings came quickly
    bench.clock.sleep_until(bench.clock.now() + 700ms);
    (void)bench.source->read({});
    (void)bench.source->tenancy();
  }
  bench.engine.change([&](TestDcgm& engine) { after = engine.watches; });
  EXPECT_EQ(after, before);
}

// NVML has no utilisation of a GPU in MIG mode.
TEST(DcgmSource, OfMigInstancesProcessesTellWhetherTheyWork) {
  SourceBench bench;
  bench.inner->next.gpu_utilisation.reset();
  (void)bench.source->tenancy();
  EXPECT_FALSE(bench.wait_for_activity(300ms));
  bench.engine.change([](TestDcgm& engine) { EXPECT_EQ(engine.calls, 0); });
  bench.inner->running.push_back({.pid = 7});
  (void)bench.source->tenancy();
  EXPECT_TRUE(bench.wait_for_activity());
}

// As far apart as a setting allows: the engine has to measure until the next one.
TEST(DcgmSource, ANeedLastsUntilTheNextReadingHoweverFarApartTheyAre) {
  SourceBench bench;
  (void)bench.source->read({});
  bench.clock.sleep_until(bench.clock.now() + 4s);
  (void)bench.source->read({});
  bench.clock.sleep_until(bench.clock.now() + 4s);
  EXPECT_TRUE(has(*bench.source->read({}), Field::activity));
}

TEST(DcgmSource, MigInstancesHaveTheirOwn) {
  SourceBench bench;
  const Instant end = bench.clock.now() + 10s;
  Tenancy seen;
  while (bench.clock.now() < end && (seen.instances.empty() || !seen.instances[0].activity.sm)) {
    seen = *bench.source->tenancy();
    bench.clock.sleep_until(bench.clock.now() + 50ms);
  }
  ASSERT_TRUE(seen.instances[0].activity.sm);
  EXPECT_NEAR(seen.instances[0].activity.sm->value(), 0.35, 0.02);
  EXPECT_EQ(seen.instances[1].activity, Activity{});
  bench.inner->profile = "2g.20gb";
  EXPECT_EQ(bench.source->tenancy()->instances[0].activity, Activity{});
}

}  // namespace
}  // namespace derate
