// How fast the parts are that must be: build/dev/tests/bench. It prints and judges nothing.
//   times_real_time   virtual seconds of one governed GPU a second; the design asks for 10,000
//   tick of 8 GPUs    CPU time of sampling, deciding and recording; wanted: below 200 us
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "lab/compare.h"

namespace {

using namespace derate;
using namespace std::chrono_literals;

PolicyChoice policy_named(const char* name) {
  const auto info = find_policy(name);
  CHECK(info.ok());
  return {*info, default_params((*info)->params), name};
}

const SimChip& chip_named(const char* name) {
  const auto chip = find_sim_chip(name);
  CHECK(chip.ok());
  return **chip;
}

std::vector<Workload> workloads_of(const SimChip& chip) {
  auto workloads = built_in_workloads(chip);
  CHECK(workloads.ok() && !workloads->empty());
  return *std::move(workloads);
}

// Simulated GPUs, all at work, under geepafs.
class Rig {
 public:
  Rig(const SimChip& chip, int gpus, bool write) {
    const PolicyChoice policy = policy_named("geepafs");
    const auto workloads = workloads_of(chip);
    std::vector<GovernedGpu> governed;
    for (int i = 0; i < gpus; ++i) {
      const auto number = static_cast<std::size_t>(i);
      gpus_.push_back(std::make_unique<SimGpu>(chip, SimOptions{.seed = number + 1}));
      devices_.push_back(std::make_unique<SimDevice>(*gpus_.back(), clock_, i));
      SimDevice& device = *devices_.back();
      gpus_.back()->start(workloads[number % workloads.size()], Duration{});
      auto envelope = make_envelope(device.capability());
      CHECK(envelope.ok());
      auto made = policy.info->create(
          {*envelope, efficient_clock(device.capability(), *envelope), policy.params});
      CHECK(made.ok());
      governed.push_back({&device, write ? &device : nullptr, *std::move(made),
                          policy.info->as_published, *envelope});
    }
    governor_ = std::make_unique<Governor>(std::move(governed), clock_);
    tick_ = policy_tick(policy.params);
  }

  void pass_tick() { clock_.advance(tick_); }
  void run_physics() {
    for (auto& gpu : gpus_) gpu->advance_to(clock_.now());
  }
  std::span<const Record> govern() { return governor_->tick(); }
  double virtual_seconds() const { return seconds(clock_.now().time_since_epoch()); }

 private:
  FakeClock clock_;
  std::vector<std::unique_ptr<SimGpu>> gpus_;
  std::vector<std::unique_ptr<SimDevice>> devices_;
  std::unique_ptr<Governor> governor_;
  Duration tick_{};
};

// One GPU in steps of 10 ms, geepafs in the loop and writing.
void simulated_gpu(benchmark::State& state, const char* chip) {
  Rig rig(chip_named(chip), 1, true);
  for (auto _ : state)
    for (int i = 0; i < 100; ++i) {
      rig.pass_tick();
      benchmark::DoNotOptimize(rig.govern());
    }
  state.counters["times_real_time"] =
      benchmark::Counter(rig.virtual_seconds(), benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(simulated_gpu, V100, "V100-SXM2")->UseRealTime();
BENCHMARK_CAPTURE(simulated_gpu, A100, "A100-SXM4")->UseRealTime();
BENCHMARK_CAPTURE(simulated_gpu, H200, "H200")->UseRealTime();

// A tick of 8 GPUs in a dry run, the physics of its 200 ms done before the watch starts.
void tick_of_8_gpus(benchmark::State& state) {
  Rig rig(chip_named("H200"), 8, false);
  for (auto _ : state) {
    state.PauseTiming();
    rig.pass_tick();
    rig.run_physics();
    state.ResumeTiming();
    benchmark::DoNotOptimize(rig.govern());
  }
}
BENCHMARK(tick_of_8_gpus)->Unit(benchmark::kMicrosecond);

void tick_of_8_gpus_with_physics(benchmark::State& state) {
  Rig rig(chip_named("H200"), 8, false);
  for (auto _ : state) {
    rig.pass_tick();
    benchmark::DoNotOptimize(rig.govern());
  }
}
BENCHMARK(tick_of_8_gpus_with_physics)->Unit(benchmark::kMicrosecond);

// What `derate demo` does for one chip: all its workloads under max-freq and two policies.
void demo_comparison(benchmark::State& state, const char* chip) {
  CompareSpec spec;
  spec.chip = &chip_named(chip);
  spec.workloads = workloads_of(*spec.chip);
  spec.policies = {policy_named("efficient-fix"), policy_named("geepafs")};
  SystemClock clock;
  double simulated = 0;
  for (auto _ : state) {
    const auto comparison = compare(spec, clock);
    CHECK(comparison.ok());
    simulated += seconds(comparison->simulated);
  }
  state.counters["comparisons"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["times_real_time"] = benchmark::Counter(simulated, benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(demo_comparison, V100, "V100-SXM2")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(demo_comparison, H200, "H200")->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
