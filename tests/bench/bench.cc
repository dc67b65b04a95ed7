// How fast the parts are that must be: build/dev/tests/bench. It prints and judges nothing.
//   times_real_time   virtual seconds of one governed GPU a second; the design asks for 10,000
//   tick of 8 GPUs    CPU time of sampling, deciding and recording; wanted: below 200 us
//   begin_a_trial     with so many behind it, sixteen batch sizes; below 0.5 ms is wanted
//   keep_model        a model to disk, on the control thread: each within 5 ms is wanted
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/test_folder.h"
#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "lab/compare.h"
#include "policy/registry/registry.h"
#include "store/model_cache.h"
#include "tune/sizes/size_policy.h"
#include "tune/trial_registry.h"

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

// Simulated GPUs, all at work, under geepafs or another policy.
class Rig {
 public:
  Rig(const SimChip& chip, int gpus, bool write, const char* name = "geepafs") {
    const PolicyChoice policy = policy_named(name);
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
      auto made = policy.info->create(policy_setup(device.capability(), *envelope, policy.params));
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
  Envelope envelope() const { return *make_envelope(devices_.front()->capability()); }
  std::unique_ptr<Policy> make_policy(const char* name) const {
    const PolicyChoice policy = policy_named(name);
    auto made = policy.info->create(
        policy_setup(devices_.front()->capability(), envelope(), policy.params));
    CHECK(made.ok());
    return *std::move(made);
  }
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

// What eight decisions of assure cost, over estimates recorded from eight GPUs at work: the jobs'
// starts, looks and changes of phase included.
void decisions_of_8_gpus(benchmark::State& state, const char* chip) {
  constexpr std::size_t kGpus = 8, kTicks = 3000;
  Rig rig(chip_named(chip), kGpus, true, "assure");
  std::vector<std::array<Estimate, kGpus>> seen;
  for (std::size_t i = 0; i < kTicks; ++i) {
    rig.pass_tick();
    std::size_t at = 0;
    for (const Record& record : rig.govern()) {
      if (at == 0) seen.emplace_back();
      seen.back()[at++] = record.estimate;
    }
  }
  std::size_t tick = seen.size();
  std::vector<std::unique_ptr<Policy>> policies;
  const Envelope envelope = rig.envelope();
  for (auto _ : state) {
    if (tick == seen.size()) {
      state.PauseTiming();
      policies.clear();
      for (std::size_t i = 0; i < kGpus; ++i) policies.push_back(rig.make_policy("assure"));
      tick = 0;
      state.ResumeTiming();
    }
    for (std::size_t i = 0; i < kGpus; ++i)
      benchmark::DoNotOptimize(policies[i]->decide(seen[tick][i], envelope));
    ++tick;
  }
}
BENCHMARK_CAPTURE(decisions_of_8_gpus, V100, "V100-SXM2")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(decisions_of_8_gpus, H200, "H200")->Unit(benchmark::kMicrosecond);

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

BeliefModel belief_of(std::size_t coefficients) {
  return {std::vector<double>(coefficients, 0.25),
          std::vector<double>(coefficients * (coefficients + 1) / 2, 0.125)};
}

// The largest model that there is, under 32 ids in turn; the file's creation counts as one, too.
void keep_model(benchmark::State& state) {
  const Folder folder;
  FakeClock clock;
  const SystemClock watch;
  std::vector<double> milliseconds;
  {
    SqliteModelCache cache(folder.file("models.db"), clock);
    PhaseModel model{"V100-SXM2", {"memory", "fp32", "tensor"}};
    model.progress = belief_of(11);
    model.with_power = belief_of(14);
    model.power_curve = belief_of(3);
    for (auto _ : state) {
      model.id = static_cast<std::int64_t>(milliseconds.size() % 32) + 1;
      clock.advance(SqliteModelCache::kWriteEvery);
      const Instant before = watch.now();
      CHECK(cache.keep(model) != 0);
      milliseconds.push_back(seconds(watch.now() - before) * 1e3);
    }
  }
  state.counters["first_ms"] = milliseconds.front();
  std::sort(milliseconds.begin(), milliseconds.end());
  state.counters["p99_ms"] = milliseconds[milliseconds.size() * 99 / 100];
  state.counters["max_ms"] = milliseconds.back();
}
BENCHMARK(keep_model)->Unit(benchmark::kMicrosecond)->UseRealTime()->Iterations(10000);

// A job of 16 batch sizes that recurs 1000 times: what all decisions cost together. Runs end as the
// toy's epochs have it; decisions while a run goes on are counted in.
void decide_1000_recurrences(benchmark::State& state, const char* name) {
  const SizePolicyInfo& policy = **find_size_policy(name);
  SizeProblem problem;
  for (int i = 0; i < 16; ++i) problem.batch_sizes.push_back(8 << i);
  problem.default_size = 1024;
  problem.max_epochs = 100;
  for (auto _ : state) {
    std::vector<Trial> trials;
    for (int recurrence = 0; recurrence < 1000;) {
      const SizeChoice choice = policy.choose(problem, trials);
      const double octaves = std::log2(choice.batch_size / 256.0);
      const double needed = std::ceil(20 + octaves * octaves + recurrence * 7 % 3);
      Trial& trial = trials.emplace_back();
      trial.id = static_cast<std::int64_t>(trials.size());
      trial.recurrence = recurrence;
      trial.batch_size = choice.batch_size;
      trial.exploring = choice.exploring;
      trial.epoch_cost = trial.default_epoch_cost = 100 / (1 + octaves / 10);
      while (trial.epochs < needed && trial.state == TrialState::running) {
        if (policy.watch(problem, trials, trials.size() - 1, choice).stop)
          trial.state = TrialState::stopped;
        trial.cost += *trial.epoch_cost;
        trial.epochs += 1;
      }
      if (trial.state == TrialState::stopped) continue;
      trial.state = TrialState::reached;
      ++recurrence;
    }
  }
}
BENCHMARK_CAPTURE(decide_1000_recurrences, tune, "tune")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decide_1000_recurrences, zeus, "zeus")->Unit(benchmark::kMillisecond);

// As a daemon does, but for measuring and writing. Folding is among it: every fiftieth begin.
void begin_a_trial(benchmark::State& state, const char* policy) {
  TrialRegistry book(60s);
  JobSpec job{.name = "a", .default_size = 1024, .target = 1, .max_epochs = 100, .policy = policy};
  for (int i = 0; i < 16; ++i) job.batch_sizes.push_back(8 << i);
  CHECK(book.create(job, 0, TrialRegistry::Replace::no, {}).ok());
  const SystemClock watch;
  std::vector<double> milliseconds;
  const auto run_one = [&] {
    const Instant before = watch.now();
    const auto begun = book.begin({.job = "a", .gpus = {"GPU-0"}, .token = "t"}, 0, {}, {});
    CHECK(begun.ok());
    milliseconds.push_back(seconds(watch.now() - before) * 1e3);
    const std::int64_t id = (*begun)->trial.id;
    const double octaves = std::log2((*begun)->trial.batch_size / 256.0);
    const double needed = std::ceil(20 + octaves * octaves + static_cast<double>(id * 7 % 3));
    const double epoch = 100 / (1 + octaves / 10);
    for (double done = 1; done <= needed; ++done) {
      const TrialPaid paid{.cost = done * epoch, .epoch_cost = epoch, .default_epoch_cost = epoch};
      const auto told =
          book.report(id, {0, "t"}, {.epochs = done, .metric = done / needed}, paid, {});
      CHECK(told.ok());
      if ((*told)->verdict) break;
    }
    CHECK(book.end(id, {0, "t"}, *book.find(id)->verdict, {}, {}, {}).ok());
    (void)book.take_changes();
  };
  for (std::int64_t i = 0; i < state.range(0); ++i) run_one();
  milliseconds.clear();
  for (auto _ : state) run_one();
  std::sort(milliseconds.begin(), milliseconds.end());
  state.counters["p50_ms"] = milliseconds[milliseconds.size() / 2];
  state.counters["p99_ms"] = milliseconds[milliseconds.size() * 99 / 100];
  state.counters["max_ms"] = milliseconds.back();
}
BENCHMARK_CAPTURE(begin_a_trial, tune, "tune")->Arg(10)->Arg(10000)->Iterations(1000);
BENCHMARK_CAPTURE(begin_a_trial, zeus, "zeus")->Arg(10)->Arg(10000)->Iterations(1000);

}  // namespace

BENCHMARK_MAIN();
