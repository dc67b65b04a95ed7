// What one picture of `derate top` costs: for people to run.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "apps/derate/top_view.h"

namespace derate::cli {
namespace {

TopPicture busy_machine(int gpus) {
  TopPicture out{.host = "node07", .time = "14:03:59", .attribution = "fair"};
  for (int i = 0; i < gpus; ++i) {
    TopGpu gpu;
    gpu.id = {i, fmt::format("{}{:012}", kSimulatedUuid, i), "", "NVIDIA H200"};
    gpu.watts = 400 + 4.5 * i;
    gpu.limit_watts = 700;
    gpu.clock_mhz = 1455;
    gpu.highest_clock_mhz = 1980;
    gpu.utilisation = 0.99;
    gpu.memory_utilisation = 0.4;
    gpu.celsius = 62;
    gpu.promise = 0.9;
    gpu.expected_performance = 0.953;
    gpu.policy = "assure";
    gpu.how = "command of uid 1000";
    gpu.reason = "least energy at 1455 MHz: 95.3 % of full speed is expected";
    gpu.saving = TopSaving{0.18, 0.16, 0.20, 1e6};
    for (int second = 0; second < 60; ++second) {
      gpu.power_history.push_back(400 + (second * 7 + i * 13) % 200);
      gpu.clock_history.push_back(1200 + (second * 11 + i * 17) % 700);
    }
    out.gpus.push_back(std::move(gpu));
    for (int job = 0; job < 4; ++job)
      out.tenants.push_back({.gpu = i,
                             .key = fmt::format("{} {}", i, job),
                             .name = fmt::format("python3 ({})", 1000 + 4 * i + job),
                             .user = "alice",
                             .group = "job 77",
                             .watts = 100.0 - job,
                             .share = 0.25,
                             .joules = 12345.0});
  }
  return out;
}

void one_frame(benchmark::State& state, TopPage page, Look look) {
  const TopPicture picture = busy_machine(64);
  TopChoice choice{.page = page};
  for (auto _ : state) benchmark::DoNotOptimize(top_frame(picture, choice, look));
}
BENCHMARK_CAPTURE(one_frame, gpus_80x24, TopPage::gpus, Look{80, 24})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(one_frame, gpus_300x80, TopPage::gpus, Look{300, 80})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(one_frame, one_gpu_300x80, TopPage::one_gpu, Look{300, 80})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(one_frame, tenants_300x80, TopPage::tenants, Look{300, 80})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace derate::cli

BENCHMARK_MAIN();
