// derate run -- CMD: governs GPUs while CMD runs, and says what came of it; tunes them for it, too.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "apps/common/open_gpus.h"
#include "base/child_process.h"
#include "base/defer.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/outermost.h"
#include "command_options.h"
#include "config/paths.h"
#include "govern/fleet/policy_choice.h"
#include "govern/fleet/restore_left.h"
#include "govern/guard.h"
#include "integ/rights.h"
#include "launch_counting.h"
#include "policy/registry/registry.h"
#include "run_at_daemon.h"
#include "run_command.h"
#include "run_report.h"
#include "run_session.h"
#include "run_ungoverned.h"
#include "service/transport/listen.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// Takes beats in until then; a signal or the command's end comes first.
void listen(RunSession& session, Instant deadline) {
  std::vector<PollSource> sources{signal_source()};
  if (BeatServer* const beats = session.beats.get(); beats != nullptr)
    sources.push_back({beats->fd(), [&session, beats] {
                         beats->serve([&](std::string_view text, const BeatServer::Sender& sender) {
                           session.tracker->on_message(text, sender);
                         });
                       }});
  if (RunEngine* const engine = session.engine.get(); engine != nullptr)
    sources.push_back({engine->fd(), [engine] { engine->take(); }});
  if (LaunchServer* const launches = session.launches.get(); launches != nullptr)
    sources.push_back({launches->fd(), [&session, launches] {
                         launches->serve([&](LaunchPage page, const LaunchServer::Sender& sender) {
                           session.tracker->on_launches(std::move(page), sender);
                         });
                       }});
  if (CommandWindows* const windows = session.windows.get(); windows != nullptr)
    sources.push_back({windows->fd(), [&session, windows] {
                         for (const std::string& uuid : windows->listen())
                           session.fleet->read_counter_next(uuid);
                         windows->answer();
                       }});
  listen_until(sources, session.clock, deadline);
}

// Says to the guard that this process lives. Errors: io when there is no guard any more.
Result<void> beat(GuardLink* link) {
  if (link == nullptr) return {};
  if (link->guard_gone()) return Error{Errc::io, "the guard process is gone"};
  link->beat();
  return {};
}

// Ticks until the command ends; returns its exit code. However long the policy's period is, the
// guard hears from this process.
Result<int> govern_until_end(RunSession& session, Child& child, StateFile& state, GuardLink* link) {
  const Duration period = session.tuned ? TunedRun::kTick : policy_tick(session.policy.params);
  const Duration beat_every = link != nullptr ? link->beat_every() : std::chrono::seconds(1);
  Instant next = session.clock.now();
  while (true) {
    next = std::max(next + period, session.clock.now());
    while (session.clock.now() < next) {
      if (const auto code = child.poll()) return *code;
      listen(session, std::min(next, session.clock.now() + beat_every));
      pass_signals_on(child);
      TRY(beat(link));
      publish(session, state);
    }
    if (const auto code = child.poll()) return *code;
    TRY(beat(link));
    TRY(tick(session, state, ReadDepth::due));
  }
}

// A broken loop leaves the GPU to its own control; the command runs on to its end.
int wait_ungoverned(RunSession& session, Child& child, GuardLink* link) {
  while (true) {
    (void)beat(link).ok();  // it may be gone: the command still is there
    if (const auto ended = child.poll()) return *ended;
    listen(session, session.clock.now() + std::chrono::seconds(1));
    pass_signals_on(child);
  }
}

Result<int> run_without_gpus(const RunOptions& options, const std::optional<RunAs>& as,
                             const std::string& why, GuardLink* link, const Log& log) {
  UngovernedHooks hooks;
  if (link != nullptr) {
    hooks.started = [link](pid_t pid) { link->started(pid); };
    hooks.alive = [link] { link->beat(); };
  }
  return run_ungoverned(options, as, why, hooks, log);
}

Result<int> run_governed(const RunOptions& options, const std::optional<TuningPlan>& tuning,
                         const std::optional<RunAs>& as, GuardLink* link, const Log& log) {
  ChosenGpus chosen = TRY(chosen_gpus(options.gpus, options.sim, [link] {
    if (link != nullptr) link->beat();
  }));
  if (!chosen.none.empty()) return run_without_gpus(options, as, chosen.none, link, log);
  RunSession session{.log = log};
  session.uid = as ? as->uid : ::geteuid();
  TRY(prepare(session, options, chosen, tuning, link));
  chosen.driver.reset();
  session.shared = options.shared || session.dry_run;
  session.counts_launches = !options.no_launches && !session.tuned && !session.sim;
  const Defer at_the_latest([&] { give_back(session); });
  StateFile state(session.clock, "run", log);
  listen_for_beats(session);
  listen_for_windows(session);
  TRY(check_alone(session));
  watch_signals();
  const Instant begin = session.clock.now();
  TRY(tick(session, state, ReadDepth::all));
  start_simulated_work(session);
  ChildOptions how{.as = as};
  if (session.beats != nullptr)
    how.environment.push_back("DERATE_BEAT_SOCKET=" + session.beats->path());
  if (session.windows != nullptr) how.environment.push_back(session.windows->variable());
  if (session.launches != nullptr) {
    how.environment.push_back("DERATE_LAUNCHES_SOCKET=" + session.launches->path());
    count_launches(options.command, how.environment, log);
  }
  auto started = TRY(Child::start(options.command, how));
  if (!started.child) {
    log.error(started.message);
    return started.exit_code;
  }
  session.tracker->command(started.child->pid());
  session.command = session.tracker->begun_by(started.child->pid(), session.uid);
  if (link != nullptr) link->started(started.child->pid());
  auto code = govern_until_end(session, *started.child, state, link);
  if (!code.ok()) {
    give_back(session, GuardOptions{}.restore_time);  // as long as the guard would
    log.error(code.error().message + "; governing has ended, the command goes on");
    return wait_ungoverned(session, *started.child, link);
  }
  const auto promised = session.work;  // while it was there
  // From here on nothing costs the command its exit code.
  if (const auto last = tick(session, state, ReadDepth::all); !last.ok())
    log.warning(last.error().message);
  session.work = promised;
  const Duration time = session.clock.now() - begin;
  give_back(session);
  // The account's reader may be slow. The guard kills a worker without beats, so beats go on
  // meanwhile.
  const auto patience = patience_for_reader([link] { (void)beat(link).ok(); });
  if (const auto reported = report(session, options, *code, time, patience); !reported.ok())
    log.error(reported.error().message);
  return *code;
}

// Prints why Derate itself failed; the code that env(1) has for that.
int run_failed(const Error& error, const Log& log) {
  log.error(error.message);
  return exit_code::kRunFailed;
}

// Governs real GPUs in a worker process, so that whatever ends it, its guard restores them.
Result<int> run_under_guard(const RunOptions& options, const std::optional<TuningPlan>& tuning,
                            const std::optional<RunAs>& as, const Log& log) {
  TRY(make_run_directory());
  TRY(check_state_directory());
  GuardOptions guard{
      .run_folder = run_directory(), .owner = kRunOwner, .ends_process = true, .adopt = true};
  GuardHooks hooks;
  hooks.work = [&](GuardLink& link) {
    return run_outermost("derate", [&] {
      const auto code = run_governed(options, tuning, as, &link, log);
      const auto shown = finish_output();
      if (!code.ok()) return run_failed(code.error(), log);
      return *code == 0 && !shown.ok() ? run_failed(shown.error(), log) : *code;
    });
  };
  hooks.left_over = left_by;
  hooks.tidy = remove_unfinished_journals;
  hooks.restore = [&log](const DomainId& domain) {
    return restore_process(domain, open_to_restore, "derate run's guard", "the worker is gone",
                           log);
  };
  hooks.log = log;
  SystemClock clock;
  const GuardOutcome outcome = TRY(run_guarded(guard, hooks, clock));
  return outcome.child_lost ? exit_code::kRunFailed : outcome.exit_code;
}

Result<bool> writes_to_real_gpus(const RunOptions& options) {
  if (options.dry_run || !backend_capabilities(options.sim).hardware) return false;
  return !TRY(load_settings(options.policy.config)).dry_run;
}

// Who may set no clocks has derated do it. Errors: nobody does it, and the command has not been
// started, so that it does not run as if it were governed.
Result<int> run_without_rights(const RunOptions& options, bool tuned, const Log& log) {
  const auto daemon = find_daemon();
  if (daemon.ok() && !options.engine.metrics.empty())
    return Error{Errc::not_supported,
                 "--metrics: derated reads the engines that its configuration names "
                 "(docs/serving.md), not those of users' runs"};
  if (!tuned && daemon.ok())
    return TRY(run_at_daemon(options, *daemon, log)
                   .with("derated governs no GPU for this command, which was not started"));
  return Error{
      Errc::no_permission,
      fmt::format("setting clocks needs root, so the command was not started. Three ways on:\n"
                  "  sudo derate {0} ...\n"
                  "  derate run --dry-run ...   only says what it would do\n"
                  "  derate {1} ...{3:{2}}with a running derated, which governs one's own GPUs{4}",
                  tuned ? "tune run" : "run", tuned ? "tune run --job" : "run", tuned ? 5 : 13, "",
                  daemon.ok() ? "" : "; none runs here")};
}

}  // namespace

void pass_signals_on(const Child& child) {
  const int signal = take_stop_signal();
  if (signal == 0) return;
  const bool from_terminal = signal == SIGINT || signal == SIGQUIT;
  if (stop_signal_was_sent() || !from_terminal) child.forward(signal);
}

int run_command(const RunOptions& options, const std::optional<TuningPlan>& tuning) {
  const Log log = program_log("derate");
  if (const auto wrong = cannot_start(options.command.front())) {
    log.error(wrong->message);
    return wrong->exit_code;
  }
  const auto real = writes_to_real_gpus(options);
  if (!real.ok()) return run_failed(real.error(), log);
  if (*real && !may_set_clocks()) {
    const auto code = run_without_rights(options, tuning.has_value(), log);
    return code.ok() ? *code : run_failed(code.error(), log);
  }
  // Before any GPU is taken: the users' database may keep us waiting.
  const auto as = options.as_root ? Result<std::optional<RunAs>>(std::nullopt) : user_behind_sudo();
  if (!as.ok()) return run_failed(as.error(), log);
  const auto code = *real ? run_under_guard(options, tuning, *as, log)
                          : run_governed(options, tuning, *as, nullptr, log);
  return code.ok() ? *code : run_failed(code.error(), log);
}

Result<int> run_verb(const RunOptions& options) { return run_command(options, {}); }

}  // namespace derate::cli
