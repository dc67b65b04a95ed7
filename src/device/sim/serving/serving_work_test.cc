#include "device/sim/serving/serving_work.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "device/sim/serving/serving_requests.h"
#include "device/sim/sim_gpu.h"
#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

ServingLaw law_of(const SimChip& chip) {
  const auto& laws = serving_laws();
  return *std::find_if(laws.begin(), laws.end(),
                       [&](const ServingLaw& law) { return law.chip == chip.name; });
}

std::vector<ServingRequest> arrivals(double rate, double until_s, std::uint64_t seed) {
  const std::vector<ServingRequest> sizes = {{0, 20, 40}, {0, 700, 5}, {0, 300, 90}, {0, 3000, 20}};
  return drawn_requests(sizes, {.rate = rate, .until_s = until_s, .seed = seed});
}

// The engine on a GPU whose clock is held before it comes.
struct HeldGpu {
  HeldGpu(const SimChip& chip, Megahertz clock, const EngineLimits& limits,
          const std::vector<ServingRequest>& requests)
      : gpu(chip, {}) {
    gpu.lock(clock, clock);
    gpu.advance_to(Instant(5s));
    begins = gpu.energy();
    Workload named{"engine", chip.name, "test", false, true, {Phase{}}};
    named.phases.front().points.resize(chip.sm_clocks.size());
    gpu.add(std::move(named), {}, {}, [&](const Workload&) {
      auto made = std::make_unique<ServingWork>(law_of(chip), gpu.chip(), limits, requests);
      work = made.get();
      return made;
    });
  }
  void run(double seconds) { gpu.advance_to(Instant(5s) + from_seconds(seconds)); }

  SimGpu gpu;
  ServingWork* work = nullptr;
  Joules begins{};
};

struct Alone {
  std::vector<std::optional<double>> first_token_s;
  double joules = 0;
};

// The same without a GPU, step by step.
Alone alone(const SimChip& chip, Megahertz clock, const EngineLimits& limits,
            const std::vector<ServingRequest>& requests, double length_s) {
  const StepModel model(law_of(chip), chip, clock);
  ServingEngine engine(limits, requests);
  Alone out;
  for (double now_s = 0; now_s < length_s;) {
    const auto load = engine.begin(now_s);
    const double next_s =
        load ? now_s + model.seconds(*load) : std::min(engine.next_arrival_s(), length_s);
    out.joules += load ? model.energy(*load).all_j : (next_s - now_s) * chip.idle_power.at(clock);
    now_s = next_s;
    if (load && now_s < length_s) engine.end(now_s);
  }
  out.first_token_s = engine.first_token_s();
  return out;
}

RC_GTEST_PROP(ServingWorkProperty, StepsTakeTheirTimeOnAGpu, ()) {
  const SimChip chip = plain(chip_named(*rc::gen::element("V100-SXM2", "H100-SXM5")));
  const Megahertz clock = chip.sm_clocks[chip.sm_clocks.size() / 2 + *rc::gen::inRange(0, 20)];
  const auto requests = arrivals(*rc::gen::inRange(1, 30) / 10.0, 9, *rc::gen::inRange(1, 1000));
  const EngineLimits limits{.most_running = 8, .step_tokens = 1024};
  HeldGpu held(chip, clock, limits, requests);
  held.run(10);
  const Alone wanted = alone(chip, clock, limits, requests, 10);
  const auto& got = held.work->engine().first_token_s();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    RC_ASSERT(got[i].has_value() == wanted.first_token_s[i].has_value());
    if (got[i]) RC_ASSERT(std::abs(*got[i] - *wanted.first_token_s[i]) < 1e-6);
  }
}

// The GPU's power is that of the step which runs when its own step begins: steps of 10 ms and of
// some 25 ms have no common period, so that the error is small in the mean.
TEST(ServingWork, DrawsWhatTheStepsDraw) {
  const SimChip chip = plain_chip();
  const Megahertz clock = chip.sm_clocks[chip.sm_clocks.size() / 2];
  const auto requests = arrivals(0.7, 150, 4);
  HeldGpu held(chip, clock, {}, requests);
  held.run(150);
  const double joules = (held.gpu.energy() - held.begins).value();
  EXPECT_NEAR(joules / alone(chip, clock, {}, requests, 150).joules, 1, 0.005);
  const ServingEnergy& energy = held.work->energy();
  EXPECT_GT(energy.prompts_j, 0.1 * energy.steps_j);
  EXPECT_LT(energy.prompts_j, energy.steps_j);
  EXPECT_LT(energy.steps_j, joules);
}

TEST(ServingWork, ShowsWhatVllmShows) {
  const SimChip chip = plain_chip();
  const std::vector<ServingRequest> two = {{0, 100, 30}, {0.1, 100, 30}};
  HeldGpu held(chip, chip.sm_clocks.back(), {.kv_tokens = 1000}, two);
  const auto state = [&] { return serving_state(held.work->engine().counters(), held.gpu.now()); };
  EXPECT_EQ(state().running, 0);
  held.run(0.5);
  EXPECT_EQ(state().running, 2);
  EXPECT_GT(state().kv_share, 0.2);
  held.run(5);
  const ServingState end = state();
  EXPECT_EQ(end.running, 0);
  EXPECT_EQ(end.waiting, 0);
  EXPECT_EQ(end.prompt_tokens, 200);
  EXPECT_EQ(end.generated_tokens, 60);
  EXPECT_EQ(end.time, Instant(10s));
  ASSERT_EQ(end.between_tokens->counts.size(), end.between_tokens->edges_s.size() + 1);
  EXPECT_TRUE(std::is_sorted(end.between_tokens->counts.begin(), end.between_tokens->counts.end()));
  EXPECT_EQ(end.between_tokens->counts.back(), 58);
  EXPECT_EQ(end.first_token->counts.back(), 2);
  EXPECT_GT(end.first_token->sum_s, 0);
}

}  // namespace
}  // namespace derate
