#include "govern/fleet/gpu_sleep.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace derate {
namespace {

using namespace std::chrono_literals;
using Wish = GpuSleep::Wish;

// A machine whose GPUs power down some seconds after they are closed.
struct Machine {
  FakeClock clock;
  std::vector<RuntimePower> power;
  int asked_driver = 0;
  GpuSleep rest;

  explicit Machine(std::vector<RuntimePower> states)
      : power(std::move(states)),
        rest({.read =
                  [this](const auto&, AskDriver ask) {
                    asked_driver += ask == AskDriver::yes ? 1 : 0;
                    return power;
                  },
              .where = BackgroundWorker::Where::at_once},
             clock) {}
  std::vector<GpuSleep::Gpu> gpus(bool in_use = false) const {
    std::vector<GpuSleep::Gpu> out;
    for (std::size_t k = 0; k < power.size(); ++k)
      out.push_back({.pci_bus_id = std::to_string(k), .in_use = in_use});
    return out;
  }
  Wish look(bool in_use = false) {
    clock.advance(1s);
    const Wish out = rest.closed() ? rest.watch_closed() : rest.watch_open(gpus(in_use));
    if (out == Wish::close) rest.note_closed();
    return out;
  }
  int seconds_until(Wish wish, int most) {
    for (int i = 1; i <= most; ++i)
      if (look() == wish) return i;
    return most + 1;
  }
};

TEST(GpuSleep, AllOfThemMustBeIdleAndAbleToSleep) {
  Machine machine({RuntimePower::on, RuntimePower::fixed});
  EXPECT_GT(machine.seconds_until(Wish::close, 3600), 3600);
  machine.power[1] = RuntimePower::on;
  EXPECT_LE(machine.seconds_until(Wish::close, 700), 700);
}

TEST(GpuSleep, OneThatWakesWakesAll) {
  Machine machine({RuntimePower::on, RuntimePower::on});
  ASSERT_NEAR(machine.seconds_until(Wish::close, 60), 21, 2);
  machine.power = {RuntimePower::off, RuntimePower::on};
  EXPECT_GT(machine.seconds_until(Wish::open, 20), 20);  // the second is still falling asleep
  machine.power[1] = RuntimePower::off;
  EXPECT_GT(machine.seconds_until(Wish::open, 3600), 3600);
  EXPECT_TRUE(machine.rest.closed());
  EXPECT_EQ(machine.asked_driver, 1);  // before they were closed
  machine.power[0] = RuntimePower::on;
  EXPECT_EQ(machine.seconds_until(Wish::open, 5), 1);
}

// A file that is never read: sysfs hangs.
TEST(GpuSleep, NobodyWaitsForAFileForLong) {
  FakeClock clock;
  std::promise<void> never;
  GpuSleep rest({.read =
                     [until = never.get_future().share()](const auto& ids, AskDriver) {
                       until.wait();
                       return std::vector<RuntimePower>(ids.size(), RuntimePower::on);
                     }},
                clock);
  for (int i = 0; i < 120; ++i) {
    clock.advance(1s);
    EXPECT_EQ(rest.watch_open(std::vector<GpuSleep::Gpu>{{.pci_bus_id = "0"}}), Wish::none);
  }
  never.set_value();
}

// It closes only GPUs that were idle for long enough and could sleep, and a closed one that is seen
// awake after it slept is opened at once, in whatever order files and work change.
RC_GTEST_PROP(GpuSleep, NeverClosesWhatIsInUse, ()) {
  Machine machine(
      std::vector<RuntimePower>(*rc::gen::inRange<std::size_t>(1, 4), RuntimePower::on));
  int idle_s = 0;
  bool slept = false;
  const auto steps = *rc::gen::container<std::vector<int>>(300, rc::gen::inRange(0, 40));
  for (const int step : steps) {
    for (RuntimePower& each : machine.power)
      if (step < 4) each = static_cast<RuntimePower>(*rc::gen::inRange(0, 4));
    const bool in_use = step == 4, was_closed = machine.rest.closed();
    if (step == 5) machine.rest.wake();
    const auto all = [&](auto&& is) {
      return std::all_of(machine.power.begin(), machine.power.end(), is);
    };
    const bool may =
        all([](RuntimePower p) { return p == RuntimePower::on || p == RuntimePower::off; });
    const Wish wish = machine.look(in_use);
    idle_s = was_closed || in_use ? 0 : idle_s + 1;
    if (wish == Wish::close) {
      RC_ASSERT(!was_closed && !in_use && may && idle_s > 20);
      slept = false;
    }
    if (!was_closed) continue;
    const bool off = all([](RuntimePower p) { return p == RuntimePower::off; });
    if (step == 5 || !may || (slept && !off)) RC_ASSERT(wish == Wish::open);
    slept = slept || off;
  }
}

}  // namespace
}  // namespace derate
