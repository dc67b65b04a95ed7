// derate run -- CMD of a user who may set no clocks: derated governs the GPUs where CMD works.
#include "run_at_daemon.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/requests.h"
#include "base/child_process.h"
#include "base/json.h"
#include "gpu_choice.h"
#include "launch_counting.h"
#include "policy/registry/registry.h"
#include "run_command.h"
#include "run_report.h"
#include "run_ungoverned.h"
#include "service/answers/run_service.h"
#include "service/records/run_figures.h"
#include "service/transport/daemon_call.h"
#include "service/transport/listen.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr Duration kAskEvery = std::chrono::seconds(1);
constexpr Duration kLook = std::chrono::milliseconds(100);

struct DaemonRun {
  SystemClock clock;
  const RunOptions& options;
  const Log& log;
  RunBegin wanted;
  DaemonCall call;
  RunView known;       // as last told
  bool begun = false;  // the connection has a run
  Instant ask_at{};

  DaemonRun(const RunOptions& how, DaemonLine line, const Log& to)
      : options(how), log(to), call(std::move(line), clock, DaemonCall::Connection::kept) {}
};

void take(DaemonRun& run, RunView view) {
  for (const RunGpuView& before : run.known.gpus)
    for (const RunGpuView& now : view.gpus)
      if (now.uuid == before.uuid && before.governed && !now.governed)
        run.log.warning(fmt::format("GPU {} is not governed any more: {}", now.index, now.why));
  for (const std::string& note : view.notes)
    if (std::find(run.known.notes.begin(), run.known.notes.end(), note) == run.known.notes.end())
      run.log.warning(note);
  run.known = std::move(view);
}

// The answer to what was asked last, waited for. Errors: as ask().
Result<RunView> wait_for_answer(DaemonRun& run) {
  while (true) {
    if (const auto answer = run.call.look()) return answer_of<RunView>(TRY(*answer));
    if (stop_signal() != 0) return Error{Errc::interrupted, "the answer was not waited for"};
    listen_until(std::vector<PollSource>{{run.call.fd(), [] {}}}, run.clock,
                 run.clock.now() + kLook);
  }
}

// Asks how it stands, each second. A daemon that was gone is asked to begin anew: the figures are
// those since then.
void talk(DaemonRun& run) {
  if (const auto answer = run.call.look()) {
    auto view = answer->ok() ? answer_of<RunView>(**answer) : Result<RunView>(answer->error());
    if (view.ok()) {
      run.begun = true;
      take(run, *std::move(view));
    } else if (std::exchange(run.begun, false)) {
      run.log.warning(view.error().message + "; the command goes on, and derated is asked again");
    }
  }
  if (run.call.under_way() || run.clock.now() < run.ask_at) return;
  run.ask_at = run.clock.now() + kAskEvery;
  run.call.begin(run.begun ? request_text(RunShow{}) : request_text(run.wanted));
}

int run_to_its_end(DaemonRun& run, Child& child) {
  while (true) {
    if (const auto code = child.poll()) return *code;
    talk(run);
    pass_signals_on(child);
    listen_until(std::vector<PollSource>{signal_source()}, run.clock, run.clock.now() + kLook);
  }
}

// What it was governed for, where that is not nearly all of the command's time.
constexpr Duration kTold = std::chrono::seconds(3);

std::string note_of(const RunGpuView& gpu) {
  if (gpu.rounds.ticks > 0)
    return fmt::format("GPU {}: governed for {} of the command's time{}", gpu.index,
                       duration_text(from_seconds(gpu.time_seconds)),
                       gpu.why.empty() ? "" : ": " + gpu.why);
  return fmt::format("GPU {}: not governed: {}", gpu.index,
                     gpu.why.empty() ? "the command ended before the first reading" : gpu.why);
}

RunAccount account_of(const DaemonRun& run, Duration time) {
  RunAccount out{.exit_code = 0, .time = time, .gpus = {}, .notes = run.known.notes};
  const bool any = std::any_of(run.known.gpus.begin(), run.known.gpus.end(),
                               [](const RunGpuView& gpu) { return gpu.rounds.ticks > 0; });
  for (const RunGpuView& gpu : run.known.gpus) {
    // Of GPUs that were not named, those that the command left alone say nothing.
    if (gpu.rounds.ticks == 0 && any && run.wanted.gpus.empty()) continue;
    if (gpu.rounds.ticks == 0 || !gpu.why.empty() || from_seconds(gpu.time_seconds) + kTold < time)
      out.notes.push_back(note_of(gpu));
    if (gpu.rounds.ticks == 0) continue;
    if (!gpu.command_seen.value_or(true)) {
      const bool others = gpu.others_seen.value_or(true);
      out.notes.push_back(command_not_seen(gpu.index, others));
      if (others) continue;
    }
    GpuSummary summary;
    summary.capability.id = {
        .index = gpu.index, .uuid = gpu.uuid, .pci_bus_id = {}, .name = gpu.name};
    summary.policy = run.known.policy;
    if (const auto policy = find_policy(run.known.policy); policy.ok())
      summary.hears_beats = (*policy)->hears_beats;
    summary.promise = gpu.promised_performance_ratio;
    summary.dry_run = run.known.dry_run;
    out.gpus.push_back({summary, figures_of(gpu)});
  }
  return out;
}

Result<RunBegin> request_for(const RunOptions& options, const ChosenGpus& chosen) {
  if (!options.records.empty())
    return Error{Errc::invalid_argument, "--records needs root: derated writes none for others"};
  if (!options.policy.config.empty())
    return Error{Errc::invalid_argument, "--config needs root: derated governs by its own"};
  RunBegin out{.policy = options.policy.policy, .set = options.policy.assignments, .gpus = {}};
  // derated can see more GPUs than this process, and number them differently.
  out.gpus = TRY(gpus_by_uuid(chosen.list.value_or("")));
  return out;
}

}  // namespace

Result<int> run_at_daemon(const RunOptions& options, const DaemonLine& daemon, const Log& log) {
  const ChosenGpus chosen = TRY(chosen_gpus(options.gpus));
  if (!chosen.none.empty()) return run_ungoverned(options, {}, chosen.none, {}, log);
  DaemonRun run(options, daemon, log);
  run.wanted = TRY(request_for(options, chosen));
  std::optional<TextFile> file;
  if (!options.report.empty()) file = TRY(TextFile::create(options.report));
  run.call.begin(request_text(run.wanted));
  take(run, TRY(wait_for_answer(run)));
  run.begun = true;
  watch_signals();
  const Instant begin = run.clock.now();
  ChildOptions how;
  if (!options.no_launches) count_launches(options.command, how.environment, log);
  auto started = TRY(Child::start(options.command, how));
  if (!started.child) {
    log.error(started.message);
    return started.exit_code;
  }
  const int code = run_to_its_end(run, *started.child);
  const Duration time = run.clock.now() - begin;
  // From here on nothing costs the command its exit code.
  if (run.call.under_way()) (void)wait_for_answer(run).ok();  // what was asked last
  if (run.begun) {
    run.call.begin(request_text(RunEnd{}));
    if (auto last = wait_for_answer(run); last.ok()) take(run, *std::move(last));
  }
  RunAccount account = account_of(run, time);
  account.exit_code = code;
  if (const auto written = write_account(account, options, file, patience_for_reader());
      !written.ok())
    log.error(written.error().message);
  return code;
}

}  // namespace derate::cli
