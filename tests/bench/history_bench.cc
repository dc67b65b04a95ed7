// What history and events cost the control thread: records of one GPU under assure at 10 Hz, the
// physics and the governor done before the watch starts. Wanted: below 20 us a second and GPU.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "device/sim/sim_device.h"
#include "govern/fleet/policy_choice.h"
#include "govern/fleet/tuned_gpus.h"
#include "policy/registry/registry.h"
#include "service/records/decision_watch.h"
#include "service/records/event_detector.h"
#include "service/records/history_sampler.h"

namespace {

using namespace derate;
using namespace std::chrono_literals;

// Ten minutes of a GPU's records.
struct Recorded {
  FakeClock clock;
  std::unique_ptr<SimGpu> sim;
  ManagedGpu gpu;
  std::vector<Record> records;

  Recorded() {
    const SimChip& chip = **find_sim_chip("H200");
    sim = std::make_unique<SimGpu>(chip, SimOptions{});
    sim->start(built_in_workloads(chip)->front(), Duration{});
    auto device = std::make_unique<SimDevice>(*sim, clock, 0);
    gpu.open.control = device.get();
    gpu.open.source = std::move(device);
    const PolicyInfo& info = **find_policy("assure");
    const PolicyAssignment policy{{&info, *policy_params(info, {})}, false};
    gpu.assigned = Assignment{.origin = origins::command, .who = "uid 0", .policy = policy};
    gpu.governed = true;
    const Settings settings;
    std::vector<GovernedGpu> governed;
    governed.push_back(
        *govern_gpu(*gpu.open.source, gpu.open.control, policy.policy, settings, nullptr));
    Governor governor(std::move(governed), clock, governor_options(settings));
    for (int i = 0; i < 6000; ++i) {
      clock.advance(100ms);
      for (const Record& record : governor.tick()) records.push_back(record);
    }
  }
};

void history_of_a_second(benchmark::State& state) {
  Recorded recorded;
  FakeClock clock;
  std::optional<HistorySampler> sampler(clock);
  DecisionWatch decisions(clock);
  std::size_t events = 0, told = 0, seconds_kept = 0, at = 0;
  EventDetector detector(clock, [&](Event) { ++events; });
  std::optional<Record> before;
  for (auto _ : state) {
    for (int i = 0; i < 10; ++i) {
      if (at == recorded.records.size()) {
        state.PauseTiming();
        at = 0;
        before.reset();
        sampler.emplace(clock);
        state.ResumeTiming();
      }
      const Record& record = recorded.records[at++];
      const GpuRecord each{recorded.gpu, record, before};
      detector.take(each);
      sampler->take(each);
      if (decisions.take(each)) ++told;
    }
    seconds_kept += sampler->take_ready().size();
  }
  state.counters["decisions_a_second"] =
      benchmark::Counter(static_cast<double>(told), benchmark::Counter::kAvgIterations);
  state.counters["seconds_kept"] =
      benchmark::Counter(static_cast<double>(seconds_kept), benchmark::Counter::kAvgIterations);
}
BENCHMARK(history_of_a_second)->Unit(benchmark::kMicrosecond);

}  // namespace
