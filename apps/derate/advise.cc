// derate advise: what holds a work back, by its counters.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "advise_view.h"
#include "apps/common/open_gpus.h"
#include "attribute_view.h"
#include "base/json.h"
#include "command_options.h"
#include "device/replay/trace_reader.h"
#include "service/records/state_file.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// A GPU and what was read of it.
struct Watched {
  Capability capability;
  std::vector<Sample> samples;
};

// Those of the phases of that label, one after the other as if nothing had been between them.
Result<std::vector<Sample>> samples_of(const Trace& trace, const std::string& label) {
  std::vector<Sample> out;
  Duration left_out{};
  bool inside = false;
  auto next = trace.labels.begin();
  for (std::size_t i = 0; i < trace.samples.size(); ++i) {
    for (; next != trace.labels.end() && next->time <= trace.samples[i].time; ++next)
      inside = next->text == label;
    if (inside) {
      out.push_back(trace.samples[i]);
      out.back().time -= left_out;
    } else if (i + 1 < trace.samples.size()) {
      left_out += trace.samples[i + 1].time - trace.samples[i].time;
    }
  }
  if (!out.empty()) return out;
  return Error{Errc::not_found, fmt::format("no phase of the trace has the label '{}'", label)};
}

Result<std::vector<Watched>> recorded(const AdviseOptions& options) {
  std::vector<Watched> out;
  for (const std::string& file : options.traces) {
    Trace trace = TRY(read_trace(file));
    if (!options.label.empty()) trace.samples = TRY(samples_of(trace, options.label).with(file));
    out.push_back({std::move(trace.capability), std::move(trace.samples)});
  }
  return out;
}

// Activity is read as often as it is renewed, processes once a second, the energy counter not.
Result<std::vector<Watched>> watch(GpusOnClock& opened, const AdviseOptions& options) {
  std::vector<Watched> out;
  for (const OpenGpu& each : opened.gpus.gpus) out.push_back({each.source->capability(), {}});
  Clock& clock = opened.clock();
  const Instant begin = clock.now();
  const Duration interval = from_seconds(options.interval_s),
                 length = from_seconds(options.seconds);
  Instant next_second = begin;
  std::string last_error = "no reading";
  ProgressLine progress("watched");
  for (Instant next = begin; next - begin < length && stop_signal() == 0; next += interval) {
    if (!clock.sleep_until(next)) break;
    const Instant now = clock.now();
    const bool second = now >= next_second;
    if (second) next_second = now + std::chrono::seconds(1);
    for (std::size_t i = 0; i < out.size(); ++i) {
      auto sample = opened.gpus.gpus[i].source->read(
          {.energy = false, .activity = true, .processes = second});
      if (sample.ok())
        out[i].samples.push_back(*std::move(sample));
      else
        last_error = sample.error().message;
    }
    progress.show(static_cast<std::size_t>(seconds(now - begin)),
                  static_cast<std::size_t>(options.seconds), now - begin);
    next = std::max(next, now - interval);
  }
  progress.clear();
  if (std::all_of(out.begin(), out.end(), [](const Watched& each) { return each.samples.empty(); }))
    return Error{Errc::query_failed, "nothing could be read: " + last_error};
  return out;
}

Result<std::vector<Watched>> watched(const AdviseOptions& options) {
  if (!options.traces.empty()) return recorded(options);
  GpusOnClock opened;
  TRY(open_quickly(opened, {.gpus = options.gpus, .sim = options.sim, .dcgm = machine_dcgm()}));
  watch_signals();
  return watch(opened, options);
}

// By UUID, which policies of this machine's governors govern GPUs now; "": the GPU is observed.
std::map<std::string, std::string> policies_in_force() {
  SystemClock clock;
  std::map<std::string, std::string> out;
  for (const Json& state : read_states(clock)) {
    const auto gpus = state.find("gpus");
    if (gpus == state.end()) continue;
    for (const Json& gpu : *gpus)
      if (!true_at(gpu, "dry_run")) out[text_at(gpu, "uuid")] = text_at(gpu, "policy");
  }
  return out;
}

std::optional<Advice> advice_of_all(const std::vector<Watched>& gpus,
                                    const std::vector<AdvisedGpu>& advised) {
  std::vector<WorkEvidence> evidence;
  std::vector<std::span<const Sample>> samples;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!advised[i].evidence) return std::nullopt;
    evidence.push_back(*advised[i].evidence);
    samples.push_back(gpus[i].samples);
  }
  return advise_of_imbalance(evidence, unevenness(samples));
}

}  // namespace

Result<int> run_verb(const AdviseOptions& options) {
  if (options.list) {
    if (options.json) return print_json("advise-list", findings_json());
    print("{}", findings_text(terminal_width()));
    return 0;
  }
  if (options.history) return advise_from_history(options);
  if (!options.traces.empty() && !options.sim.chip.empty())
    return Error{Errc::invalid_argument, "--sim: a trace is of a GPU of its own"};
  const std::vector<Watched> gpus = TRY(watched(options));
  if (options.one_job && gpus.size() < 2)
    return Error{Errc::invalid_argument,
                 "--one-job: there is one GPU; wanted are those of the job"};
  std::vector<AdvisedGpu> advised;
  const bool live = options.traces.empty() && options.sim.chip.empty();
  const auto policies = live ? policies_in_force() : std::map<std::string, std::string>();
  for (const Watched& each : gpus) {
    AdvisedGpu& one = advised.emplace_back(AdvisedGpu{each.capability.id, {}, {}});
    if (const auto known = policies.find(each.capability.id.uuid); known != policies.end())
      one.policy = known->second;
    one.evidence = gather_evidence(each.samples, each.capability);
    if (one.evidence) one.advice = advise(*one.evidence);
  }
  const auto of_all = options.one_job ? advice_of_all(gpus, advised) : std::nullopt;
  if (of_all)
    for (AdvisedGpu& each : advised) drop_what_imbalance_explains(each.advice);
  if (options.json) return print_json("advise", advice_json(advised, of_all));
  print("{}", advice_text(advised, of_all, terminal_width()));
  return 0;
}

}  // namespace derate::cli
