// derate run -- CMD: governs GPUs while CMD runs, and says what came of it; tunes them for it, too.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <vector>

#include "apps/common/gpus.h"
#include "base/child_process.h"
#include "base/defer.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/log.h"
#include "base/outermost.h"
#include "base/text.h"
#include "config/paths.h"
#include "govern/actuator.h"
#include "govern/audit_record.h"
#include "govern/fleet/policy_choice.h"
#include "govern/fleet/restore_left.h"
#include "govern/guard.h"
#include "govern/ledger.h"
#include "govern/record_json.h"
#include "govern/records_file.h"
#include "run_command.h"
#include "service/beat_socket.h"
#include "service/listen.h"
#include "service/signals.h"
#include "service/state_file.h"
#include "service/workload_tracker.h"
#include "store/audit.h"
#include "summary.h"
#include "terminal/output.h"
#include "verbs.h"

namespace derate::cli {
namespace {

constexpr const char* kOwner = "derate run";

// A simulated GPU's double, at the highest clock, with the same work: what it would have cost.
class TwinGpu {
 public:
  TwinGpu(const SimSetup& setup, int seed)
      : gpu_(*setup.chip, SimOptions{.seed = static_cast<std::uint64_t>(seed)}) {
    gpu_.lock(setup.chip->sm_clocks.back(), setup.chip->sm_clocks.back());
  }
  void start(const Workload& workload) {
    gpu_.start(workload, Duration::zero());
    energy_at_start_ = gpu_.energy();
  }
  // Brought to where `real` stands; `energy` is what `real` has used since the start.
  Twin compare(const SimGpu& real, Joules energy) {
    gpu_.advance_to(real.now());
    Twin out;
    const double mine = gpu_.work_done(), theirs = real.work_done();
    if (mine <= 0 || theirs <= 0) return out;
    out.performance = theirs / mine;
    out.energy_saving =
        1 - (energy.value() / theirs) / ((gpu_.energy() - energy_at_start_).value() / mine);
    return out;
  }

 private:
  SimGpu gpu_;
  Joules energy_at_start_{};
};

// Everything that lives while the command runs.
struct Session {
  SystemClock clock;
  Settings settings;
  ChosenPolicy policy;
  std::shared_ptr<TunedRun> tuned;  // in place of the policy; null: there is none
  bool dry_run = false;
  OpenGpus gpus;
  std::optional<SimSetup> sim;
  std::vector<UniqueFd> leases;
  std::vector<std::unique_ptr<TwinGpu>> twins;
  std::optional<ModelShelf> models;  // outlives the governor's policies
  std::vector<Joules> sim_energy_at_start;
  std::unique_ptr<Governor> governor;
  std::vector<Ledger> ledgers;
  std::optional<AuditLog> audit;            // where real GPUs are written to
  std::vector<std::optional<Record>> last;  // of each GPU
  bool audit_failed = false, given_back = false;
  std::optional<RecordsFile> records;
  std::optional<TextFile> report;
  std::unique_ptr<BeatServer> beats;  // null: none can be heard
  std::optional<WorkDesk> desk;
  std::vector<GpuWork> work;  // on each GPU, as last told
};

const char* policy_name(const Session& session) {
  return session.tuned != nullptr ? "tune" : session.policy.info->name;
}

Result<void> open_gpus(Session& session, const RunOptions& options, GuardLink* link) {
  if (!options.sim.chip.empty()) {
    session.sim = TRY(find_sim_setup(options.sim));
    session.gpus = TRY(open_sim_gpus(*session.sim, options.sim, options.gpus, session.clock));
    for (const OpenGpu& gpu : session.gpus.gpus)
      session.twins.push_back(std::make_unique<TwinGpu>(
          *session.sim, options.sim.seed + gpu.source->capability().id.index));
    return {};
  }
  const std::string& choice = options.gpus.empty() ? session.settings.gpus : options.gpus;
  // Many GPUs take longer to open than the guard lets a worker be silent.
  session.gpus = TRY(open_nvml_gpus(choice, kLoopPatience, [link] {
    if (link != nullptr) link->beat();
  }));
  return {};
}

void note(Session& session, AuditEntry entry) {
  if (!session.audit) return;
  entry.who = fmt::format("{}, pid {}", kOwner, ::getpid());
  const auto kept = session.audit->append(entry);
  if (!kept.ok() && !std::exchange(session.audit_failed, true))
    tell_line("derate", "no audit log: " + kept.error().message);
}

// Gives everything back; what could not be is told.
void give_back(Session& session) {
  if (session.governor == nullptr || std::exchange(session.given_back, true)) return;
  const auto restored = session.governor->restore();
  if (!restored.ok()) tell_line("derate", "not restored: " + restored.error().message);
  for (const OpenGpu& gpu : session.gpus.gpus)
    note(session, audit_of_restore(restored, gpu.source->capability().id.uuid, "the run has ended",
                                   session.clock.wall_now()));
}

// What an earlier process left on these GPUs is restored before anything is written to them.
Result<void> restore_leftovers(Session& session) {
  const Journal journal(journal_directory());
  const Leftovers left = TRY(journal.read(current_life()));
  set_unusable_aside(left);
  for (const JournalEntry& entry : left.entries)
    for (OpenGpu& gpu : session.gpus.gpus) {
      if (gpu.source->capability().id.uuid != entry.uuid) continue;
      JournalEntry mine = entry;
      auto restored = restore_settings(*gpu.control, mine).with(entry.uuid);
      if (restored.ok()) restored = journal.remove(entry.uuid);
      note(session, audit_of_restore(restored, entry.uuid,
                                     fmt::format("left by {}, pid {}", entry.owner, entry.pid),
                                     session.clock.wall_now()));
      TRY(std::move(restored).with("what an earlier process left"));
      tell_line("derate", fmt::format("{}: restored what {} (pid {}) left", entry.uuid, entry.owner,
                                      entry.pid));
    }
  return {};
}

// A real GPU is taken from all other governors first, and what is found on it kept on disk.
Result<void> take_gpus(Session& session, GuardLink& link) {
  for (OpenGpu& gpu : session.gpus.gpus)
    session.leases.push_back(TRY(link.lease(gpu.source->capability().id.uuid)));
  return restore_leftovers(session);
}

Keeping keeping_for(const Session& session, const GpuId& id) {
  JournalEntry entry;
  entry.uuid = id.uuid;
  entry.life = current_life();
  entry.owner = kOwner;
  entry.pid = ::getpid();
  entry.time = session.clock.wall_now();
  if (const auto& s = session.settings; s.found_lowest_mhz && s.found_highest_mhz)
    entry.found_lock = ClockRange{Megahertz(*s.found_lowest_mhz), Megahertz(*s.found_highest_mhz)};
  return {Journal(journal_directory()), std::move(entry)};
}

Result<std::unique_ptr<BeatServer>> beat_server(Clock& clock) {
  TRY(make_run_directory());
  return BeatServer::create(fmt::format("{}/beat-{}.sock", run_directory(), ::getpid()), clock);
}

// The command says how far it is on a socket of its own.
void listen_for_beats(Session& session) {
  WorkDesk::Options how;
  how.tell = [](const std::string& text) { tell_line("derate", text); };
  session.desk.emplace(session.clock, how);
  session.desk->list_every(from_seconds(session.settings.processes_every_s));
  session.desk->rules(session.settings);
  // Nothing is governed yet, and who starts a command wants to know of a rule that cannot hold.
  session.desk->await_users(std::chrono::seconds(1));
  if (auto server = beat_server(session.clock); server.ok())
    session.beats = *std::move(server);
  else
    tell_line("derate", "no heartbeats: " + server.error().message);
}

// Who may not keep models does without.
void tell_of_models(const Error& error) {
  if (error.code != Errc::no_permission) tell_line("derate", "models of work: " + error.message);
}

// None in a folder that another user could have put there.
ModelFiles files_of_models() {
  if (const auto state = check_state_directory(); !state.ok()) {
    tell_line("derate", "models of work: " + state.error().message);
    return {};
  }
  return {model_file(), simulated_model_file()};
}

Result<void> choose_governing(Session& session, const RunOptions& options,
                              const std::optional<TuningPlan>& tuning) {
  session.dry_run = options.dry_run || session.settings.dry_run;
  if (!tuning) {
    session.policy = TRY(choose_policy(options.policy, session.settings));
    return {};
  }
  if (session.dry_run)
    return Error{Errc::bad_config, "governor.dry_run: tuning is nothing without a write"};
  std::vector<TunableGpu> gpus;
  for (const OpenGpu& gpu : session.gpus.gpus)
    gpus.push_back({&gpu.source->capability(), gpu.control});
  session.tuned = TRY(make_tuned_run(*tuning, gpus, session.settings));
  return {};
}

Result<GovernedGpu> seat_of(Session& session, const OpenGpu& gpu) {
  if (session.tuned != nullptr)
    return tuned_seat(*gpu.source, gpu.control, *session.tuned, session.settings);
  ClockControl* control = session.dry_run ? nullptr : gpu.control;
  GovernedGpu out =
      TRY(govern_gpu(*gpu.source, control, session.policy, session.settings, &*session.models));
  out.on_drift = drift_rule(session.settings);
  return out;
}

// `link` is null where nothing real is written: simulated GPUs, dry runs.
Result<void> prepare(Session& session, const RunOptions& options,
                     const std::optional<TuningPlan>& tuning, GuardLink* link) {
  session.settings = TRY(load_settings(options.policy.config));
  if (!tuning) TRY(choose_governing(session, options, tuning));  // told before a GPU is opened
  TRY(open_gpus(session, options, link));
  if (link != nullptr) {
    session.audit.emplace(audit_file());
    TRY(take_gpus(session, *link));
  }
  if (tuning) TRY(choose_governing(session, options, tuning));  // by what is found on them
  session.models.emplace(files_of_models(), session.clock, tell_of_models);
  session.last.resize(session.gpus.gpus.size());
  std::vector<GovernedGpu> governed;
  for (OpenGpu& gpu : session.gpus.gpus) {
    governed.push_back(TRY(seat_of(session, gpu)));
    if (link != nullptr)
      governed.back().keeping = keeping_for(session, gpu.source->capability().id);
    session.ledgers.emplace_back(governed.back().envelope.highest());
  }
  session.governor = std::make_unique<Governor>(std::move(governed), session.clock,
                                                governor_options(session.settings));
  if (!options.report.empty()) session.report = TRY(TextFile::create(options.report));
  if (!options.records.empty())
    session.records = TRY(RecordsFile::create(options.records, session.clock.now()));
  return {};
}

void start_simulated_work(Session& session) {
  for (std::size_t i = 0; i < session.twins.size(); ++i) {
    SimGpu& gpu = *session.gpus.gpus[i].sim;
    gpu.start(session.sim->workload, Duration::zero());
    session.sim_energy_at_start.push_back(gpu.energy());
    session.twins[i]->start(session.sim->workload);
  }
}

std::vector<WorkDesk::Gpu> desk_gpus(const Session& session) {
  std::vector<WorkDesk::Gpu> out;
  const auto delta = session.tuned != nullptr ? std::nullopt : policy_delta(session.policy);
  for (const OpenGpu& gpu : session.gpus.gpus) out.push_back({gpu.source.get(), out.size(), delta});
  return out;
}

void tell_work(Session& session) {
  session.work = session.desk->update(desk_gpus(session));
  for (std::size_t at = 0; at < session.work.size(); ++at)
    session.governor->tell(at, session.work[at].status);
}

std::optional<double> promise_at(const Session& session, std::size_t at) {
  if (session.tuned != nullptr) return std::nullopt;
  return promised_performance(session.policy, session.work[at].status);
}

Json state_of(const Session& session, const Record& record) {
  const auto at = static_cast<std::size_t>(record.gpu);
  GpuView view{session.gpus.gpus[at].source->capability(), record, policy_name(session),
               session.dry_run, promise_at(session, at)};
  const bool own_promise = session.tuned == nullptr && !session.policy.info->as_published;
  if (own_promise) view.promise_from = session.work[at].promise_from;
  return gpu_state(view);
}

// A command on simulated GPUs does not work there: it is their own work that counts.
void tune(Session& session) {
  if (session.tuned == nullptr) return;
  double done = 0;
  for (const OpenGpu& gpu : session.gpus.gpus)
    if (gpu.sim != nullptr) done += gpu.sim->work_done();
  if (session.sim) session.tuned->tell_work({1, done, session.clock.now()});
  session.tuned->round(session.clock.now());
}

// For `derate status`, each second: a state that is older is nobody's.
void publish(const Session& session, StateFile& state) {
  if (!state.due()) return;
  Json gpus = Json::array();
  for (const auto& record : session.last)
    if (record) gpus.push_back(state_of(session, *record));
  state.publish(std::move(gpus), {{"beats", session.desk->beats_json()}});
}

Result<void> tick(Session& session, StateFile& state, bool everything) {
  tell_work(session);
  for (const Record& record : session.governor->tick(everything)) {
    const auto at = static_cast<std::size_t>(record.gpu);
    session.ledgers[at].add(record);
    if (session.tuned != nullptr) session.tuned->note(at, record);
    const std::string& uuid = session.gpus.gpus[at].source->capability().id.uuid;
    if (auto told = audit_of(record, session.last[at], uuid, session.clock.wall_now()))
      note(session, *std::move(told));
    session.last[at] = record;
    if (session.records) TRY(session.records->add(record));
  }
  tune(session);
  session.desk->begin_listing(desk_gpus(session));
  publish(session, state);
  return {};
}

// Takes beats in until then; a signal or the command's end comes first.
void listen(Session& session, Instant deadline) {
  std::vector<Ear> ears{signal_ear()};
  if (BeatServer* const beats = session.beats.get(); beats != nullptr)
    ears.push_back({beats->fd(), [&session, beats] {
                      beats->serve([&](std::string_view text, const BeatServer::Sender& sender) {
                        session.desk->hear(text, sender);
                      });
                    }});
  listen_until(ears, session.clock, deadline);
}

// Signals that were sent to us go on to the command; those of the terminal it has got by itself.
void pass_signals_on(const Child& child) {
  const int signal = take_stop_signal();
  if (signal == 0) return;
  const bool from_terminal = signal == SIGINT || signal == SIGQUIT;
  if (stop_signal_was_sent() || !from_terminal) child.forward(signal);
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
Result<int> govern_until_end(Session& session, Child& child, StateFile& state, GuardLink* link) {
  const Duration period =
      session.tuned != nullptr ? TunedRun::kTick : policy_tick(session.policy.params);
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
    TRY(tick(session, state, false));
  }
}

GpuSummary summary_of(Session& session, std::size_t at) {
  GpuSummary out;
  OpenGpu& gpu = session.gpus.gpus[at];
  out.capability = gpu.source->capability();
  out.policy = policy_name(session);
  out.promise = promise_at(session, at);
  out.dry_run = session.dry_run;
  if (gpu.sim != nullptr)
    out.twin =
        session.twins[at]->compare(*gpu.sim, gpu.sim->energy() - session.sim_energy_at_start[at]);
  return out;
}

Result<void> report(Session& session, const RunOptions& options, int exit_code, Duration time) {
  Json gpus = Json::array();
  std::string text = fmt::format("\nderate: the command ended with exit code {} after {}\n",
                                 exit_code, duration_text(time));
  for (std::size_t i = 0; i < session.ledgers.size(); ++i) {
    const GpuSummary summary = summary_of(session, i);
    text += summary_text(summary, session.ledgers[i]);
    gpus.push_back(summary_json(summary, session.ledgers[i]));
  }
  Json document = {{"command", options.command},
                   {"exit_code", exit_code},
                   {"time_seconds", seconds(time)},
                   {"gpus", std::move(gpus)}};
  if (session.tuned != nullptr) {
    text += tuning_text(*session.tuned, session.clock.now());
    document["tuning"] = tuning_json(*session.tuned, session.clock.now());
  }
  if (session.report) {
    auto written = session.report->write(options.json ? json_text(document, 2) + "\n" : text);
    if (written.ok()) return {};
    write_text(stderr, text);  // better seen than lost
    return written;
  }
  if (options.json)
    print_json(document);
  else
    write_text(stderr, text);
  return {};
}

// A broken loop leaves the GPU to its own control; the command runs on to its end.
int wait_ungoverned(Session& session, Child& child, GuardLink* link) {
  give_back(session);
  while (true) {
    (void)beat(link).ok();  // it may be gone: the command still is there
    if (const auto ended = child.poll()) return *ended;
    listen(session, session.clock.now() + std::chrono::seconds(1));
    pass_signals_on(child);
  }
}

Result<int> run_governed(const RunOptions& options, const std::optional<TuningPlan>& tuning,
                         const std::optional<RunAs>& as, GuardLink* link) {
  Session session;
  TRY(prepare(session, options, tuning, link));
  const Defer at_the_latest([&] { give_back(session); });
  for (const std::string& note : session.gpus.notes) tell_line("derate", note);
  StateFile state(session.clock, "run");
  listen_for_beats(session);
  watch_signals();
  const Instant begin = session.clock.now();
  TRY(tick(session, state, true));
  start_simulated_work(session);
  ChildOptions how{.as = as};
  if (session.beats != nullptr)
    how.environment.push_back("DERATE_BEAT_SOCKET=" + session.beats->path());
  auto started = TRY(Child::start(options.command, how));
  if (!started.child) {
    tell_line("derate", started.message);
    return started.exit_code;
  }
  session.desk->command(started.child->pid());
  if (link != nullptr) link->started(started.child->pid());
  auto code = govern_until_end(session, *started.child, state, link);
  if (!code.ok()) {
    tell_line("derate", code.error().message + "; governing ends, the command goes on");
    return wait_ungoverned(session, *started.child, link);
  }
  const auto promised = session.work;  // while it was there
  // From here on nothing costs the command its exit code.
  if (const auto last = tick(session, state, true); !last.ok())
    tell_line("derate", last.error().message);
  session.work = promised;
  const Duration time = session.clock.now() - begin;
  give_back(session);
  if (const auto reported = report(session, options, *code, time); !reported.ok())
    tell_line("derate", reported.error().message);
  return *code;
}

// Prints why Derate itself failed; the code that env(1) has for that.
int run_failed(const Error& error) {
  tell_line("derate", error.message);
  return exit_code::kRunFailed;
}

// Governs real GPUs in a worker process, so that whatever ends it, its guard restores them.
Result<int> run_under_guard(const RunOptions& options, const std::optional<TuningPlan>& tuning,
                            const std::optional<RunAs>& as) {
  TRY(make_run_directory());
  TRY(check_state_directory());
  GuardOptions guard{
      .run_folder = run_directory(), .owner = kOwner, .ends_process = true, .adopt = true};
  GuardHooks hooks;
  hooks.work = [&](GuardLink& link) {
    return run_outermost("derate", [&] {
      const auto code = run_governed(options, tuning, as, &link);
      const auto shown = finish_output();
      if (!code.ok()) return run_failed(code.error());
      return *code == 0 && !shown.ok() ? run_failed(shown.error()) : *code;
    });
  };
  hooks.left_over = left_by;
  hooks.restore = [](const std::string& uuid) {
    return restore_process(uuid, open_to_restore, "derate run's guard", "the worker is gone");
  };
  hooks.tell = [](const std::string& text) { tell_line("derate", text); };
  SystemClock clock;
  const GuardOutcome outcome = TRY(run_guarded(guard, hooks, clock));
  return outcome.child_lost ? exit_code::kRunFailed : outcome.exit_code;
}

Result<bool> writes_to_real_gpus(const RunOptions& options) {
  if (options.dry_run || !options.sim.chip.empty()) return false;
  return !TRY(load_settings(options.policy.config)).dry_run;
}

}  // namespace

int run_command(const RunOptions& options, const std::optional<TuningPlan>& tuning) {
  const auto real = writes_to_real_gpus(options);
  if (!real.ok()) return run_failed(real.error());
  // Before any GPU is taken: the users' database may keep us waiting.
  const auto as = options.as_root ? Result<std::optional<RunAs>>(std::nullopt) : user_behind_sudo();
  if (!as.ok()) return run_failed(as.error());
  const auto code =
      *real ? run_under_guard(options, tuning, *as) : run_governed(options, tuning, *as, nullptr);
  return code.ok() ? *code : run_failed(code.error());
}

Result<int> run_verb(const RunOptions& options) { return run_command(options, {}); }

}  // namespace derate::cli
