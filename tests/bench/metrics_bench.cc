// What metrics cost: build/dev/tests/metrics_bench. It prints and judges nothing.
//   text     of so many GPUs with 10 tenants each; wanted: 8 GPUs 1 ms of CPU, 64 GPUs 8 ms
//   totals   of one record of a GPU: 80 a second with 8 GPUs at 10 Hz
//   own      figures of the process: once a second
//   rows     of a new picture of one GPU with 10 tenants: one a second
#include <benchmark/benchmark.h>

#include "service/metrics/metric_catalogue.h"
#include "service/records/test_snapshot.h"

namespace {

using namespace derate;
using namespace std::chrono_literals;

void text(benchmark::State& state, bool dcgm_names, MetricFormat format) {
  const Snapshot snapshot = full_snapshot(static_cast<int>(state.range(0)), 10);
  std::size_t bytes = 0;
  for (auto _ : state) {
    const std::string out = metrics_text(snapshot, {.format = format,
                                                    .tenants = true,
                                                    .dcgm_names = dcgm_names,
                                                    .version = "0.2.0",
                                                    .hostname = "node7",
                                                    .now = kFullNow});
    bytes = out.size();
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["kB"] = static_cast<double>(bytes) / 1000;
}
BENCHMARK_CAPTURE(text, prometheus, false, MetricFormat::prometheus)
    ->Arg(8)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(text, openmetrics, false, MetricFormat::openmetrics)
    ->Arg(8)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(text, with_dcgm_names, true, MetricFormat::prometheus)
    ->Arg(8)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);

void totals(benchmark::State& state) {
  GpuTotalsMeter meter(2s);
  std::optional<Record> before;
  Record record = full_gpu(0).record;
  for (auto _ : state) {
    record.time += 100ms;
    record.sample->time = record.time;
    *record.sample->energy += Joules(41);
    meter.add(record, before, {.governed = true, .promise = PromiseState::kept, .tick = 200ms});
    if (!before) before = record;
  }
  benchmark::DoNotOptimize(meter.totals().reads);
}
BENCHMARK(totals)->Unit(benchmark::kMicrosecond);

void rows(benchmark::State& state) {
  TenantRows rows;
  auto picture = *full_picture(0, 10);
  const BoardSums tick = picture.board;
  Instant now = kFullNow;
  for (auto _ : state) {
    picture.board.add(tick);
    now += 1s;
    const std::vector pictures = {std::make_shared<const AttributionPicture>(picture)};
    rows.take(pictures, now);
  }
  benchmark::DoNotOptimize(rows.tables().size());
}
BENCHMARK(rows)->Unit(benchmark::kMicrosecond);

void own(benchmark::State& state) {
  FakeClock clock;
  DaemonMeter meter(clock);
  for (auto _ : state) {
    clock.advance(1s);
    benchmark::DoNotOptimize(meter.figures().cpu);
  }
}
BENCHMARK(own)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
