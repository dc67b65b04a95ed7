#include "device/nvml/nvml_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <csignal>

#include "device/nvml/nvml_device.h"
#include "fakenvml/test_nvml.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using RealTime = std::chrono::steady_clock;

constexpr Duration kShort = 50ms;
// No call that hangs here is waited for; far above what a busy machine adds.
constexpr Duration kLong = 60s;

// What a hung source shares with its test; it may outlive the source's owner.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool shut = false;
  int let_through = 0;  // while it is shut
  int inside = 0;
  int passed = 0;
  int destroyed = 0;

  void let_one_through() {
    const std::lock_guard lock(mutex);
    ++let_through;
    changed.notify_all();
  }
  void set(bool closed) {
    const std::lock_guard lock(mutex);
    shut = closed, let_through = 0;
    changed.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex);
    ++inside;
    changed.notify_all();
    changed.wait(lock, [&] { return !shut || let_through > 0; });
    if (shut) --let_through;
    --inside;
    ++passed;
    changed.notify_all();
  }
  int count_inside() {
    const std::lock_guard lock(mutex);
    return inside;
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, condition);
  }
};

// Counts its readings in the sample's energy; each passes the gate.
class GatedSource final : public TelemetrySource {
 public:
  explicit GatedSource(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {
    capability_.id.index = 3;
    capability_.id.uuid = "GPU-abc";
  }
  ~GatedSource() override {
    const std::lock_guard lock(gate_->mutex);
    ++gate_->destroyed;
    gate_->changed.notify_all();
  }
  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan& plan) override {
    gate_->pass();
    thread = std::this_thread::get_id();
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    interruptible = sigismember(&mask, SIGTERM) == 0;
    Sample sample;
    sample.energy = Joules(++readings_);
    if (plan.activity) sample.activity.sm = percent(1);
    return sample;
  }
  Result<std::vector<GpuProcess>> processes() override {
    gate_->pass();
    return Error{Errc::no_permission, "no"};
  }

  static inline std::atomic<std::thread::id> thread;
  static inline std::atomic<bool> interruptible;

 private:
  std::shared_ptr<Gate> gate_;
  Capability capability_;
  int readings_ = 0;
};

// Polls until there is an answer.
template <class Poll>
auto answer_of(Poll poll) {
  const auto end = RealTime::now() + kLong;
  auto answer = poll();
  for (; !answer && RealTime::now() < end; answer = poll()) std::this_thread::yield();
  return answer;
}

struct NvmlSourceTest : ::testing::Test {
  std::unique_ptr<NvmlSource> create(Duration deadline) {
    return *NvmlSource::create(std::make_unique<GatedSource>(gate), nullptr,
                               {deadline, deadline, kLong, deadline});
  }
  // Reads until the GPU answers again.
  Result<Sample> read_when_back(NvmlSource& source) {
    const auto end = RealTime::now() + kLong;
    while (true) {
      auto sample = source.read({});
      if (sample.ok() || RealTime::now() > end) return sample;
      std::this_thread::yield();
    }
  }
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
};

TEST_F(NvmlSourceTest, PassesCallsOnToItsThread) {
  const auto source = create(kLong);
  EXPECT_EQ(source->capability().id.uuid, "GPU-abc");
  const Sample first = *source->read({.energy = true, .activity = false});
  EXPECT_EQ(first.energy, Joules(1));
  EXPECT_FALSE(first.activity.sm);
  EXPECT_EQ(source->read({})->activity.sm, percent(1));
  EXPECT_EQ(source->processes().error().code, Errc::no_permission);
  EXPECT_NE(GatedSource::thread.load(), std::this_thread::get_id());
  EXPECT_FALSE(GatedSource::interruptible);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0);  // ours is as it was
}

TEST_F(NvmlSourceTest, AHungCallIsStuckThenLateThenFine) {
  const auto source = create(kShort);
  gate->set(true);
  auto start = RealTime::now();
  const auto stuck = source->read({});
  EXPECT_GE(RealTime::now() - start, kShort);
  ASSERT_FALSE(stuck.ok());
  EXPECT_EQ(stuck.error().code, Errc::gpu_stuck);
  EXPECT_TRUE(
      stuck.error().message.starts_with("GPU 3 (GPU-abc): no answer from the driver for 0."))
      << stuck.error().message;

  // At once while it hangs, whatever is asked, and no second call is made.
  start = RealTime::now();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(source->read({}).error().code, Errc::gpu_stuck);
    EXPECT_EQ(source->processes().error().code, Errc::gpu_stuck);
  }
  EXPECT_LT(RealTime::now() - start, 1000 * kShort);
  EXPECT_EQ(gate->count_inside(), 1);

  // The late answer was the first reading; the next that is seen is the second or later.
  gate->set(false);
  const auto back = read_when_back(*source);
  ASSERT_TRUE(back.ok());
  EXPECT_GE(back->energy, Joules(2));
}

// A busy machine makes calls late: only a call that stays out says that the GPU is stuck.
TEST_F(NvmlSourceTest, ACallIsLateBeforeItIsStuck) {
  const auto source = *NvmlSource::create(std::make_unique<GatedSource>(gate), nullptr,
                                          {kShort, kShort, kShort, 4 * kShort});
  gate->set(true);
  const auto start = RealTime::now();
  auto late = source->read({});
  // Measured from before the call: at a time when it says "late", it has not been out for longer.
  if (RealTime::now() - start < 4 * kShort) {
    EXPECT_EQ(late.error().code, Errc::busy);
  }
  while (RealTime::now() - start < 4 * kShort) std::this_thread::yield();
  while (RealTime::now() - start < kLong && late.error().code == Errc::busy)
    late = source->read({});
  EXPECT_EQ(late.error().code, Errc::gpu_stuck);
  gate->set(false);
  EXPECT_TRUE(read_when_back(*source).ok());
}

TEST_F(NvmlSourceTest, TheDestructorDoesNotWaitForAHungCall) {
  auto source = create(kShort);
  gate->set(true);
  EXPECT_EQ(source->read({}).error().code, Errc::gpu_stuck);
  source.reset();  // would wait for ever
  {
    const std::lock_guard lock(gate->mutex);
    EXPECT_EQ(gate->inside, 1);
    EXPECT_EQ(gate->destroyed, 0);  // the call still uses it
  }
  gate->set(false);
  EXPECT_TRUE(gate->wait([&] { return gate->destroyed == 1; }));
}

TEST_F(NvmlSourceTest, TheDestructorEndsAnIdleThread) {
  auto source = create(kLong);
  ASSERT_TRUE(source->read({}).ok());
  source.reset();
  EXPECT_EQ(gate->destroyed, 1);
  create(kLong).reset();  // never used
  EXPECT_EQ(gate->destroyed, 2);
}

TEST_F(NvmlSourceTest, OneStuckGpuDoesNotHoldTheOther) {
  auto other_gate = std::make_shared<Gate>();
  const auto hung = create(kShort);
  const auto other =
      *NvmlSource::create(std::make_unique<GatedSource>(other_gate), nullptr, {kLong, kLong});
  gate->set(true);
  EXPECT_EQ(hung->read({}).error().code, Errc::gpu_stuck);
  EXPECT_TRUE(other->read({}).ok());
  gate->set(false);
  EXPECT_TRUE(read_when_back(*hung).ok());
}

TEST_F(NvmlSourceTest, CallersFromSeveralThreadsTakeTurns) {
  const auto source = create(kLong);
  std::vector<std::thread> callers;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int n = 0; n < 100; ++n) good += source->read({}).ok() ? 1 : 0;
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(good, 400);
}

TEST_F(NvmlSourceTest, CarriesAnNvmlDevice) {
  StagedNvml fake;
  fake.add_gpu();
  FakeClock clock;
  {
    auto devices = *list_devices(*NvmlLibrary::create(StagedNvml::functions()), clock);
    const auto source =
        *NvmlSource::create(std::move(devices.opened.front()), nullptr, {kLong, kLong});
    clock.advance(1s);
    const Sample sample = *source->read({});
    EXPECT_EQ(sample.time, Instant(1s));
    EXPECT_EQ(sample.sm_clock, Megahertz(1755));
  }
  EXPECT_EQ(fake.initialised, 0);
}

TEST_F(NvmlSourceTest, AStartedReadingRunsBeforeItIsAskedFor) {
  const auto source = create(kLong);
  source->start_reading({});
  EXPECT_EQ(source->read({})->energy, Joules(1));  // the one that was started, not a second one
  EXPECT_EQ(source->read({})->energy, Joules(2));
}

TEST_F(NvmlSourceTest, ImpatientCallersGoOnAndALateReadingIsDropped) {
  const auto source = create(kShort);
  gate->set(true);
  source->start_reading({});
  EXPECT_EQ(source->read({}).error().code, Errc::gpu_stuck);
  source->start_reading({});  // hangs still: nothing is queued behind it
  EXPECT_EQ(source->read({}).error().code, Errc::gpu_stuck);
  gate->set(false);
  EXPECT_EQ(read_when_back(*source)->energy, Joules(2));
}

TEST_F(NvmlSourceTest, AListOfProcessesIsWaitedForByNobody) {
  const auto source = create(kShort);
  EXPECT_EQ(source->poll_processes()->error().code, Errc::invalid_argument);  // none was begun
  gate->set(true);
  source->start_processes();
  ASSERT_TRUE(gate->wait([&] { return gate->inside == 1; }));
  EXPECT_FALSE(source->poll_processes());
  source->start_reading({});
  EXPECT_EQ(source->read({}).error().code, Errc::gpu_stuck);
  gate->set(false);
  EXPECT_TRUE(read_when_back(*source).ok());
  const auto listed = source->poll_processes();
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->error().code, Errc::no_permission);
}

// A reading that finds the list still under way comes after it, and before one that only waits.
TEST_F(NvmlSourceTest, AReadingWaitsForAListThatIsUnderWay) {
  const auto source = create(kLong);
  for (int i = 1; i <= 50; ++i) {
    source->start_processes();
    source->start_reading({});
    EXPECT_EQ(source->read({})->energy, Joules(i));
    EXPECT_TRUE(answer_of([&] { return source->poll_processes(); }));
  }
}

TEST_F(NvmlSourceTest, TenantsAreWaitedForByNobody) {
  const auto source = create(kShort);
  EXPECT_EQ(source->poll_tenancy()->error().code, Errc::invalid_argument);  // none was begun
  gate->set(true);
  source->start_tenancy();
  ASSERT_TRUE(gate->wait([&] { return gate->inside == 1; }));
  EXPECT_FALSE(source->poll_tenancy());
  EXPECT_EQ(source->tenancy().error().code, Errc::gpu_stuck);
  gate->set(false);
  EXPECT_TRUE(read_when_back(*source).ok());
  const auto told = source->poll_tenancy();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->error().code, Errc::no_permission);
}

// Both come due in one round of a loop: neither is refused because of the other.
TEST_F(NvmlSourceTest, CallsOfTwoKindsWaitForEachOther) {
  const auto source = create(kLong);
  for (int i = 0; i < 50; ++i) {
    gate->set(true);
    source->start_processes();
    source->start_tenancy();
    source->start_reading({});
    EXPECT_FALSE(source->poll_processes());
    EXPECT_FALSE(source->poll_tenancy());
    gate->set(false);
    EXPECT_TRUE(source->read({}).ok());
    const auto listed = answer_of([&] { return source->poll_processes(); });
    const auto surveyed = answer_of([&] { return source->poll_tenancy(); });
    ASSERT_TRUE(listed && surveyed);
    EXPECT_EQ(listed->error().code, Errc::no_permission);  // the source's own answer
    EXPECT_EQ(surveyed->error().code, Errc::no_permission);
  }
}

TEST_F(NvmlSourceTest, AskedTwiceForTheSameItIsBusyAndTheFirstAnswerIsKept) {
  const auto source = create(kLong);
  gate->set(true);
  source->start_processes();
  source->start_processes();
  const auto refused = source->poll_processes();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->error().code, Errc::busy);
  EXPECT_EQ(refused->error().message, "GPU 3: busy with an earlier call of the same kind");
  EXPECT_FALSE(source->poll_processes());
  gate->set(false);
  const auto listed = answer_of([&] { return source->poll_processes(); });
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->error().code, Errc::no_permission);
  EXPECT_EQ(source->poll_processes()->error().code, Errc::invalid_argument);
}

// What waits behind a call that hangs is told that the GPU is stuck, and never made.
TEST_F(NvmlSourceTest, ACallThatNobodyWaitsForIsStuckWhenItOverruns) {
  const auto source = *NvmlSource::create(std::make_unique<GatedSource>(gate), nullptr,
                                          {kLong, kLong, kShort, kShort});
  gate->set(true);
  source->start_tenancy();
  ASSERT_TRUE(gate->wait([&] { return gate->inside == 1; }));
  source->start_processes();
  const auto surveyed = answer_of([&] { return source->poll_tenancy(); });
  ASSERT_TRUE(surveyed);
  EXPECT_EQ(surveyed->error().code, Errc::gpu_stuck);
  EXPECT_EQ(source->poll_processes()->error().code, Errc::gpu_stuck);
  source->start_tenancy();  // still hung
  EXPECT_EQ(source->poll_tenancy()->error().code, Errc::gpu_stuck);
  gate->set(false);
  EXPECT_TRUE(read_when_back(*source).ok());
  EXPECT_EQ(gate->passed, 3);  // a survey is a reading and a list; then a reading
  source->start_tenancy();
  EXPECT_EQ(answer_of([&] { return source->poll_tenancy(); })->error().code, Errc::no_permission);
}

// Two calls that each take most of a patience: the second is not stuck. Repeated where a busy
// machine had one of them take more than it.
TEST_F(NvmlSourceTest, TheTimeBehindAnotherCallIsNotBeingStuck) {
  constexpr Duration kPatience = 300ms, kHeld = 200ms;
  const auto end = RealTime::now() + kLong;
  SystemClock clock;
  for (bool told = false; !told && RealTime::now() < end;) {
    const auto source = create(kPatience);
    gate->set(true);
    const int before = gate->passed;
    const auto first = RealTime::now();
    source->start_processes();
    gate->wait([&] { return gate->inside == 1; });
    RealTime::time_point second{}, last{};
    std::thread holder([&] {
      clock.sleep_until(clock.now() + kHeld);
      second = RealTime::now();
      gate->let_one_through();
      gate->wait([&] { return gate->passed == before + 1; });
      clock.sleep_until(clock.now() + kHeld);
      gate->let_one_through();
    });
    const auto sample = source->read({});
    last = RealTime::now();
    holder.join();
    gate->set(false);
    told = second - first < kPatience && last - second < kPatience;
    if (!told) continue;
    EXPECT_GT(last - first, kPatience);
    EXPECT_TRUE(sample.ok()) << sample.error().message;
  }
}

// Counts its writes.
struct CountedControl final : ClockControl {
  Result<void> lock_sm_clock(Megahertz, Megahertz) override { return ++writes, Result<void>(); }
  Result<void> reset_sm_clock() override { return ++writes, Result<void>(); }
  Result<void> set_power_limit(Watts) override { return ++writes, Result<void>(); }
  Result<GpuSettings> settings() override { return GpuSettings{}; }
  std::atomic<int> writes{0};
};

// Its caller was told that it failed: it must not come true afterwards.
TEST_F(NvmlSourceTest, AWriteThatWaitedInVainIsNotMadeLater) {
  CountedControl control;
  const auto source = *NvmlSource::create(std::make_unique<GatedSource>(gate), &control,
                                          {kShort, kShort, kLong, kShort});
  gate->set(true);
  source->start_processes();
  ASSERT_TRUE(gate->wait([&] { return gate->inside == 1; }));
  EXPECT_EQ(source->reset_sm_clock().error().code, Errc::gpu_stuck);
  gate->set(false);
  EXPECT_TRUE(read_when_back(*source).ok());
  EXPECT_EQ(control.writes, 0);
}

// A call that is about to come back is waited for: a handle that is closed is closed.
TEST_F(NvmlSourceTest, TheDestructorWaitsForACallThatIsUnderWay) {
  auto source = create(kLong);
  gate->set(true);
  source->start_tenancy();
  ASSERT_TRUE(gate->wait([&] { return gate->inside == 1; }));
  std::thread opener([&] { gate->set(false); });
  source.reset();
  EXPECT_EQ(gate->destroyed, 1);
  opener.join();
}

TEST(NvmlSource, TellsTheTenantsOfItsGpu) {
  StagedNvml fake;
  StagedGpu& gpu = fake.add_gpu();
  gpu.add_instance(1, "3g.71gb", "MIG-a");
  const SystemClock clock;
  auto devices = *list_devices(*NvmlLibrary::create(StagedNvml::functions()), clock);
  const auto source =
      *NvmlSource::create(std::move(devices.opened.front()), nullptr, {kLong, kLong});
  const auto tenancy = source->tenancy();
  ASSERT_TRUE(tenancy.ok());
  ASSERT_EQ(tenancy->instances.size(), 1u);
  EXPECT_EQ(tenancy->instances[0].uuid, "MIG-a");
}

TEST_F(NvmlSourceTest, WithoutAControlWritesAreNotSupported) {
  const auto source = create(kLong);
  EXPECT_EQ(source->reset_sm_clock().error().code, Errc::not_supported);
  EXPECT_EQ(source->settings().error().code, Errc::not_supported);
}

TEST(NvmlSource, WritesRunOnTheThreadToo) {
  StagedNvml fake;
  fake.add_gpu();
  const SystemClock clock;
  auto devices = *list_devices(*NvmlLibrary::create(StagedNvml::functions()), clock);
  ClockControl* control = devices.opened.front().get();
  const auto source =
      *NvmlSource::create(std::move(devices.opened.front()), control, {kLong, kLong});
  EXPECT_TRUE(source->lock_sm_clock(Megahertz(345), Megahertz(1980)).ok());
  EXPECT_TRUE(source->set_power_limit(Watts(500)).ok());
  EXPECT_TRUE(source->reset_sm_clock().ok());
  EXPECT_EQ(source->settings()->power_limit, Watts(500));
  EXPECT_EQ(fake.gpus[0]->writes, (std::vector<std::string>{"345..1980", "500000 mW", "reset"}));
}

}  // namespace
}  // namespace derate
