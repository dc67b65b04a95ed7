// What a tick of attribution costs, by method: seven MIG instances, their energies settled; our own
// method also without its lag bank, and 100 processes on 8 GPUs. And what the training of a method
// costs, over 9 workloads at 400 points each.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "attrib/allocate_energy.h"
#include "attrib/online_split.h"
#include "attrib/training.h"
#include "base/check.h"

namespace {

using namespace derate;

constexpr BoardFacts kBoard{
    .base = Watts(75), .context = Watts(42), .highest_clock = Megahertz(1980)};

// Activity that differs from unit to unit and from `i` to `i`: irrational steps around 0..1.
Activity activity_at(int i) {
  Activity out;
  int unit = 1;
  for (const ActivityShare& share : activity_shares())
    out.*share.member = Fraction(std::fmod(i * std::sqrt(2.0 + unit++), 1.0));
  return out;
}

std::vector<TrainingRun> make_runs() {
  std::vector<TrainingRun> runs;
  for (int w = 0; w < 9; ++w) {
    TrainingRun& run = runs.emplace_back(TrainingRun{.workload = std::to_string(w)});
    for (int i = 0; i < 400; ++i) {
      TrainingPoint point{.activity = activity_at(400 * w + i), .clock = Megahertz(1000 + 2 * i)};
      point.above_idle =
          Watts(300 * point.activity.sm->value() + 150 * point.activity.dram->value());
      point.instance = i % 2 == 1;
      point.share = point.memory_share = Fraction(point.instance ? 1 / 7.0 : 1);
      run.points.push_back(point);
    }
  }
  return runs;
}

const std::vector<TrainingRun>& training_runs() {
  static const std::vector<TrainingRun> runs = make_runs();
  return runs;
}

std::unique_ptr<SplitMethod> make_method(const SplitMethodInfo& method) {
  const std::string_view name = method.name;
  if (!method.needs_training) return method.make(kBoard);
  if (name == "offline-linear") return make_offline_linear(kBoard, training_runs());
  if (name == "offline-trees") return make_offline_trees(kBoard, training_runs());
  if (name == "workload-models")
    return make_workload_models(kBoard, training_runs(),
                                [](std::string_view key) { return std::string(key.substr(0, 1)); });
  CHECK(name == "exact-curve");
  return make_exact_curve(kBoard, [](const TenantTick& tenant, Megahertz clock) {
    return Watts(0.3 * clock.value() * tenant.share.value());
  });
}

AttribTick tick_at(int i) {
  AttribTick tick{.length = std::chrono::seconds(1), .energy_mj = 400'000 + i};
  tick.sm_clock = Megahertz(1755);
  tick.board = activity_at(i);
  for (int k = 0; k < 7; ++k)
    tick.tenants.push_back({.key = std::to_string(k) + "/MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f",
                            .signal = SignalKind::instance_activity,
                            .share = Fraction(1 / 7.0),
                            .memory_share = Fraction(1 / 8.0),
                            .activity = activity_at(i + 100 * k)});
  return tick;
}

void split_tick(benchmark::State& state, const SplitMethodInfo* info) {
  std::vector<AttribTick> ticks;
  for (int i = 0; i < 100; ++i) ticks.push_back(tick_at(i));
  const auto method = make_method(*info);
  std::size_t at = 0;
  for (auto _ : state) {
    const AttribTick& tick = ticks[at++ % ticks.size()];
    benchmark::DoNotOptimize(allocate_energy(tick, method->step(tick), IdleRule::unallocated));
  }
}

void step_online(benchmark::State& state, bool lag_bank) {
  std::vector<AttribTick> ticks;
  for (int i = 0; i < 100; ++i) ticks.push_back(tick_at(i));
  const auto method = make_online(kBoard, {.lag_bank = lag_bank});
  std::size_t at = 0;
  for (auto _ : state) benchmark::DoNotOptimize(method->step(ticks[at++ % ticks.size()]));
}
BENCHMARK_CAPTURE(step_online, 7_instances, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(step_online, 7_instances_no_lag_bank, false)->Unit(benchmark::kMicrosecond);

// A GPU's part of 100 processes, as its driver tells of them.
AttribTick processes_at(int gpu, int i) {
  AttribTick tick{.length = std::chrono::seconds(1), .energy_mj = 400'000 + i};
  tick.sm_clock = Megahertz(1755);
  for (int k = gpu; k < 100; k += 8) {
    TenantTick process{.key = "0f6c4d5e-3b0a/" + std::to_string(100'000 + k) + "/17320418",
                       .signal = SignalKind::process_utilisation};
    process.sm_utilisation = Fraction((i * 7 + k * 13) % 12 / 100.0);
    process.memory_utilisation = Fraction((i * 5 + k * 3) % 8 / 100.0);
    tick.tenants.push_back(process);
  }
  return tick;
}

void step_100_processes_on_8_gpus(benchmark::State& state) {
  std::vector<std::vector<AttribTick>> ticks(8);
  std::vector<std::unique_ptr<SplitMethod>> methods;
  for (int gpu = 0; gpu < 8; ++gpu) {
    methods.push_back(make_online_split(kBoard));
    for (int i = 0; i < 100; ++i)
      ticks[static_cast<std::size_t>(gpu)].push_back(processes_at(gpu, i));
  }
  std::size_t at = 0;
  for (auto _ : state) {
    for (std::size_t gpu = 0; gpu < methods.size(); ++gpu)
      benchmark::DoNotOptimize(methods[gpu]->step(ticks[gpu][at % 100]));
    ++at;
  }
}
BENCHMARK(step_100_processes_on_8_gpus)->Unit(benchmark::kMicrosecond);

void train(benchmark::State& state, const SplitMethodInfo* info) {
  training_runs();
  for (auto _ : state) benchmark::DoNotOptimize(make_method(*info));
}

// One benchmark a row of the table of methods.
const bool kRegistered = [] {
  for (const SplitMethodInfo& info : split_methods()) {
    const std::string name = info.name;
    benchmark::RegisterBenchmark(("split_tick/" + name).c_str(), split_tick, &info)
        ->Unit(benchmark::kMicrosecond);
    if (info.needs_training)
      benchmark::RegisterBenchmark(("train/" + name).c_str(), train, &info)
          ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
