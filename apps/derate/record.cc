// derate record: writes a trace of one GPU.
#include <fmt/format.h>

#include "apps/common/open_gpus.h"
#include "base/json.h"
#include "command_options.h"
#include "device/replay/trace_writer.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Result<void> open_gpu(GpusOnClock& recording, const RecordOptions& options) {
  const bool real = backend_capabilities(options.sim).hardware;
  if (!real && options.seconds <= 0)
    return Error{Errc::invalid_argument, "a simulated GPU is recorded for a given --seconds"};
  TRY(open_quickly(recording, {.gpus = options.gpu, .sim = options.sim, .dcgm = machine_dcgm()}));
  if (real && recording.gpus.gpus.size() != 1)
    return Error{Errc::invalid_argument, "a trace holds one GPU: name one with -i"};
  return {};
}

struct Recorded {
  int samples = 0, failures = 0;
  std::string last_error;
  Duration time{};
};

Result<Recorded> record(TelemetrySource& source, Clock& clock, TraceWriter& writer,
                        const RecordOptions& options) {
  Recorded out;
  const Instant begin = clock.now();
  const Instant end = options.seconds > 0 ? begin + from_seconds(options.seconds) : Instant::max();
  const Duration interval = from_seconds(options.interval_s);
  // The expensive fields keep their own pace: energy and processes at 1 Hz, activity as often as it
  // is renewed.
  Instant next_second = begin, next_activity = begin;
  ProgressLine progress("recorded");
  for (Instant next = begin; next < end && stop_signal() == 0; next += interval) {
    if (!clock.sleep_until(next)) break;
    const Instant now = clock.now();
    // The tick nearest to the due time reads: a tick that comes a microsecond early is on time.
    const Instant nearly = now + interval / 2;
    const bool second = nearly >= next_second;
    const ReadPlan plan{.energy = second, .activity = nearly >= next_activity, .processes = second};
    if (second) next_second = now + std::chrono::seconds(1);
    if (plan.activity) next_activity = now + std::chrono::milliseconds(100);
    const auto sample = source.read(plan);
    if (sample.ok()) {
      TRY(writer.append(*sample));
      ++out.samples;
    } else {
      ++out.failures;
      out.last_error = sample.error().message;
      if (sample.error().code == Errc::gpu_lost) return sample.error();
    }
    TRY(writer.flush(now));
    if (options.seconds > 0)
      progress.show(static_cast<std::size_t>(seconds(now - begin)),
                    static_cast<std::size_t>(options.seconds), now - begin);
    next = std::max(next, now - interval);  // what was missed is not caught up
  }
  progress.clear();
  out.time = clock.now() - begin;
  TRY(writer.close());
  return out;
}

}  // namespace

Result<int> run_verb(const RecordOptions& options) {
  GpusOnClock recording;
  TRY(open_gpu(recording, options));
  TelemetrySource& source = *recording.gpus.gpus[0].source;
  Clock& clock = recording.clock();
  TraceWriterOptions writer_options{.epoch = clock.now(),
                                    .start = recording.real_time.wall_now(),
                                    .interval = from_seconds(options.interval_s)};
  if (!backend_capabilities(options.sim).hardware) writer_options.tags["simulated"] = "yes";
  if (!recording.gpus.driver_version.empty())
    writer_options.tags["driver"] = recording.gpus.driver_version;
  if (options.force) writer_options.if_exists = TraceWriterOptions::IfExists::overwrite;
  TraceWriter writer =
      TRY(TraceWriter::create(options.output, source.capability(), writer_options));
  watch_signals();
  const Recorded outcome = TRY(record(source, clock, writer, options));
  if (options.json) {
    Json document = {{"file", options.output},
                     {"gpu", source.capability().id.uuid},
                     {"samples", outcome.samples},
                     {"failed_reads", outcome.failures},
                     {"time_seconds", seconds(outcome.time)}};
    print_json("record", document);
  } else {
    print("{}: {} samples over {} of GPU {} ({})\n", options.output, outcome.samples,
          duration_text(outcome.time), source.capability().id.index, source.capability().id.name);
    if (outcome.failures > 0)
      print("{} reads failed; the last: {}\n", outcome.failures, outcome.last_error);
  }
  return 0;
}

}  // namespace derate::cli
