#include "run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cuda.h"
#include "heater.h"
#include "json_line.h"
#include "pace.h"

namespace derate::bench_cuda {
namespace {

constexpr std::size_t kQueuedBatches = 2;  // one runs, one waits: the GPU never does

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void print_line(std::initializer_list<JsonField> fields) {
  std::puts(json_line(fields).c_str());
  std::fflush(stdout);  // a reader beside us wants it now
}

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

// A signal that was held back, or 0.
int take_signal() {
  const sigset_t set = ending_signals();
  const timespec at_once{};
  return std::max(sigtimedwait(&set, nullptr, &at_once), 0);
}

// --- The GPU -------------------------------------------------------------------------------------

cudaDeviceProp use_device(std::int64_t index) {
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  if (index >= count)
    throw Failure(exit_code::kGpuFailed, "--device '" + std::to_string(index) +
                                             "': allowed is 0 to " + std::to_string(count - 1));
  const int device = static_cast<int>(index);
  CUDA_CHECK(cudaSetDevice(device));
  // Waiting threads sleep: a spinning one would take a processor, and power, from what is measured.
  CUDA_CHECK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties;
}

// As nvidia-smi writes it.
std::string uuid_of(const cudaDeviceProp& properties) {
  std::string text = "GPU";
  char byte[3];
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(properties.uuid.bytes[i]));
    text += byte;
  }
  return text;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// --- Batches -------------------------------------------------------------------------------------

struct StreamOwner {
  StreamOwner() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~StreamOwner() { cudaStreamDestroy(stream); }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  Stream stream = nullptr;
};

struct Batch {
  Kind kind;
  double work;
  Event done;
};

Batch queue_batch(const Job& job, const Kind& kind, std::int64_t steps, Stream stream) {
  const Phase& of = job.phases[kind.phase];
  for (std::int64_t i = 0; i < steps; ++i) of.step(stream);
  CUDA_CHECK(cudaGetLastError());  // of any launch: it stays until it is asked for
  return {kind, of.work_a_step * double(steps),
          recorded_event(stream, cudaEventBlockingSync | cudaEventDisableTiming)};
}

void wait_for(const Batch& batch) { CUDA_CHECK(cudaEventSynchronize(batch.done.get())); }

// Steps that fill a batch, found by doubling them; warms the GPU up as well.
std::int64_t find_batch_steps(const Job& job, const Kind& kind, Stream stream, Heater* heater) {
  for (std::int64_t steps = 1;; steps *= 2) {
    if (heater) heater->top_up();
    const double begin = monotonic_seconds();
    wait_for(queue_batch(job, kind, steps, stream));
    const double took = monotonic_seconds() - begin;
    if (took >= kBatchSeconds) return steps_in(kBatchSeconds, took / double(steps));
  }
}

// --- The lines -----------------------------------------------------------------------------------

void print_header(const Workload& workload, const Job& job, const Options& options,
                  const cudaDeviceProp& gpu) {
  int runtime = 0, driver = 0;
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  const std::string unit = workload.work_unit, rate_unit = unit + "/s", uuid = uuid_of(gpu);
  const std::string capability = std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
  const std::string cuda = version_text(runtime), cuda_driver = version_text(driver);
  print_line({{"line", "header"},
              {"workload", workload.name},
              {"work_unit", unit},
              {"rate_unit", rate_unit},
              {"size", options.size},
              {"size_unit", workload.sizes.what},
              {"seed", options.seed},
              {"heat", options.heat},
              {"gpu_name", gpu.name},
              {"gpu_uuid", uuid},
              {"gpu_index", options.device},
              {"compute_capability", capability},
              {"multiprocessors", std::int64_t{gpu.multiProcessorCount}},
              {"cuda_version", cuda},
              {"cuda_driver_version", cuda_driver},
              {"checked", true},
              {"largest_relative_error", job.check.largest_error},
              {"allowed_relative_error", job.check.allowed_error}});
}

std::string wrong_result(const Workload& workload, const Check& check) {
  char text[160];
  std::snprintf(text, sizeof text, "%s: wrong result: largest relative error %.3g, allowed is %.3g",
                workload.name, check.largest_error, check.allowed_error);
  return text;
}

void print_rate(const Job& job, const Tally& tally, const Stretch& stretch) {
  const double age = monotonic_seconds() - stretch.end_seconds;
  print_line({{"line", "rate"},
              {"phase", job.phases[stretch.kind.phase].name},
              {"data", stretch.kind.data},
              {"heat_data", stretch.kind.heat_data},
              {"time_unix_seconds", unix_seconds() - age},
              {"monotonic_seconds", stretch.end_seconds},
              {"seconds", stretch.seconds()},
              {"work", stretch.work},
              {"rate", stretch.rate()},
              {"work_total", tally.whole.work - tally.open.work}});
}

void print_heat(const Heater::Done& done) {
  print_line({{"line", "heat"},
              {"time_unix_seconds", unix_seconds()},
              {"seconds", done.seconds},
              {"work", done.tflop},
              {"rate", done.tflop / done.seconds}});
}

void print_summary(const Workload& workload, const Job& job, const Tally& tally, int signal) {
  const std::string rate_unit = std::string(workload.work_unit) + "/s";
  if (job.phases.size() > 1)
    for (std::size_t i = 0; i < job.phases.size(); ++i)
      print_line({{"line", "phase"},
                  {"phase", job.phases[i].name},
                  {"work", tally.of_phases[i].work},
                  {"seconds", tally.of_phases[i].seconds()},
                  {"rate", tally.of_phases[i].rate()},
                  {"rate_unit", rate_unit}});
  print_line({{"line", "summary"},
              {"workload", workload.name},
              {"work", tally.whole.work},
              {"seconds", tally.whole.seconds()},
              {"rate", tally.whole.rate()},
              {"rate_unit", rate_unit},
              {"ended_by_signal", std::int64_t{signal}}});
}

// --- The run -------------------------------------------------------------------------------------

struct Outcome {
  Tally tally;
  int signal = 0;  // that ended it
};

void fill_inputs(const Job& job, const Kind& last, const Kind& now, Stream stream, Heater* heater) {
  if (job.fill && now.data != last.data) job.fill(now.data, stream);
  if (heater && now.heat_data != last.heat_data) heater->fill(now.heat_data);
}

// Keeps the queue two batches deep until time, work or a signal ends it; then lets it run dry.
Outcome keep_busy(const Job& job, const Options& options, Stream stream, Heater* heater) {
  std::vector<std::int64_t> batch_steps;
  for (std::size_t phase = 0; phase < job.phases.size(); ++phase)
    batch_steps.push_back(find_batch_steps(job, {phase}, stream, heater));

  const double begin = monotonic_seconds();
  Outcome outcome{begin_tally(job.phases.size(), begin)};
  double work_queued = 0;
  Kind last;  // as everything was filled at first
  std::deque<Batch> queue;
  while (true) {
    while (queue.size() < kQueuedBatches && outcome.signal == 0) {
      const double elapsed = monotonic_seconds() - begin;
      const Kind kind = kind_at(elapsed, job.phases.size(), options);
      const std::int64_t steps =
          next_steps(elapsed, work_queued, job.phases[kind.phase].work_a_step,
                     batch_steps[kind.phase], options);
      if (steps == 0) break;
      fill_inputs(job, std::exchange(last, kind), kind, stream, heater);
      queue.push_back(queue_batch(job, kind, steps, stream));
      work_queued += queue.back().work;
    }
    if (queue.empty()) return outcome;
    if (heater) heater->top_up();
    const Batch& oldest = queue.front();
    wait_for(oldest);
    const auto report = add_batch(outcome.tally, oldest.kind, oldest.work, monotonic_seconds());
    if (report) {
      print_rate(job, outcome.tally, *report);
      if (heater) print_heat(heater->take());
    }
    queue.pop_front();
    if (outcome.signal == 0) outcome.signal = take_signal();
  }
}

}  // namespace

void hold_signals() {
  const sigset_t set = ending_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

int run_workload(const Workload& workload, const Options& options) {
  const cudaDeviceProp gpu = use_device(options.device);
  const Job job = workload.prepare({options.size, static_cast<std::uint64_t>(options.seed)});
  if (!(job.check.largest_error <= job.check.allowed_error))
    throw Failure(exit_code::kWrongResult, wrong_result(workload, job.check));
  if (options.data != std::vector<double>{1} && !job.fill)
    throw Failure(exit_code::kUsage, std::string("--data: not with ") + workload.name +
                                         ", whose input is its own state");
  std::optional<Heater> heater;
  if (options.heat > 0) heater.emplace(options.heat, static_cast<std::uint64_t>(options.seed));
  print_header(workload, job, options, gpu);

  const StreamOwner owner;
  const Outcome outcome = keep_busy(job, options, owner.stream, heater ? &*heater : nullptr);
  print_summary(workload, job, outcome.tally, outcome.signal);
  return outcome.signal == 0 ? exit_code::kOk : exit_code::kSignal + outcome.signal;
}

}  // namespace derate::bench_cuda
