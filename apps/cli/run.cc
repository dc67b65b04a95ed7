// derate run -- CMD: governs GPUs while CMD runs, and says what came of it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/common/audit_record.h"
#include "apps/common/gpus.h"
#include "apps/common/output.h"
#include "apps/common/paths.h"
#include "apps/common/restore.h"
#include "apps/common/setup.h"
#include "apps/common/signals.h"
#include "apps/common/state_file.h"
#include "apps/common/text_file.h"
#include "apps/common/work_desk.h"
#include "base/defer.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/text.h"
#include "child.h"
#include "govern/actuator.h"
#include "govern/guard.h"
#include "govern/ledger.h"
#include "govern/record_json.h"
#include "service/beat_socket.h"
#include "store/audit.h"
#include "summary.h"
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

Result<void> open_gpus(Session& session, const RunOptions& options, const GuardLink* link) {
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
    warn("derate: no audit log: {}\n", kept.error().message);
}

// Gives everything back; what could not be is told.
void give_back(Session& session) {
  if (session.governor == nullptr || std::exchange(session.given_back, true)) return;
  const auto restored = session.governor->restore();
  if (!restored.ok()) warn("derate: not restored: {}\n", restored.error().message);
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
      warn("derate: {}: restored what {} (pid {}) left\n", entry.uuid, entry.owner, entry.pid);
    }
  return {};
}

// A real GPU is taken from all other governors first, and what is found on it kept on disk.
Result<void> take_gpus(Session& session, const GuardLink& link) {
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

// The command says how far it is on a socket of its own.
void listen_for_beats(Session& session) {
  WorkDesk::Options how;
  how.tell = [](const std::string& text) { warn("derate: {}\n", text); };
  session.desk.emplace(session.clock, how);
  session.desk->list_every(from_seconds(session.settings.processes_every_s));
  session.desk->rules(promise_rules(session.settings, how.tell));
  std::error_code ignored;
  std::filesystem::create_directory(run_directory(), ignored);
  auto server = BeatServer::create(fmt::format("{}/beat-{}.sock", run_directory(), ::getpid()),
                                   session.clock);
  if (server.ok())
    session.beats = *std::move(server);
  else
    warn("derate: no heartbeats: {}\n", server.error().message);
}

// Who may not keep models does without.
void tell_of_models(const Error& error) {
  if (error.code != Errc::no_permission) warn("derate: models of work: {}\n", error.message);
}

// `link` is null where nothing real is written: simulated GPUs, dry runs.
Result<void> prepare(Session& session, const RunOptions& options, const GuardLink* link) {
  session.settings = TRY(load_settings(options.policy.config));
  session.policy = TRY(choose_policy(options.policy, session.settings));
  session.dry_run = options.dry_run || session.settings.dry_run;
  TRY(open_gpus(session, options, link));
  if (link != nullptr) {
    session.audit.emplace(audit_file());
    TRY(take_gpus(session, *link));
  }
  session.models.emplace(ModelFiles{model_file(), simulated_model_file()}, session.clock,
                         tell_of_models);
  session.last.resize(session.gpus.gpus.size());
  std::vector<GovernedGpu> governed;
  for (OpenGpu& gpu : session.gpus.gpus) {
    ClockControl* control = session.dry_run ? nullptr : gpu.control;
    governed.push_back(
        TRY(govern_gpu(*gpu.source, control, session.policy, session.settings, &*session.models)));
    governed.back().on_drift = drift_rule(session.settings);
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
  for (const OpenGpu& gpu : session.gpus.gpus)
    out.push_back({gpu.source.get(), policy_delta(session.policy)});
  return out;
}

void tell_work(Session& session) {
  session.work = session.desk->update(desk_gpus(session));
  for (std::size_t at = 0; at < session.work.size(); ++at)
    session.governor->tell(at, session.work[at].status);
}

std::optional<double> promise_at(const Session& session, std::size_t at) {
  return promised_performance(session.policy, session.work[at].status);
}

Json state_of(const Session& session, const Record& record) {
  const auto at = static_cast<std::size_t>(record.gpu);
  GpuView view{session.gpus.gpus[at].source->capability(), record, session.policy.info->name,
               session.dry_run, promise_at(session, at)};
  if (!session.policy.info->as_published) view.promise_from = session.work[at].promise_from;
  return gpu_state(view);
}

Result<void> tick(Session& session, StateFile& state, bool everything) {
  const bool publish = state.due();
  tell_work(session);
  Json gpus = Json::array();
  for (const Record& record : session.governor->tick(everything)) {
    const auto at = static_cast<std::size_t>(record.gpu);
    session.ledgers[at].add(record);
    const std::string& uuid = session.gpus.gpus[at].source->capability().id.uuid;
    if (auto told = audit_of(record, session.last[at], uuid, session.clock.wall_now()))
      note(session, *std::move(told));
    session.last[at] = record;
    if (session.records) TRY(session.records->add(record));
    if (publish) gpus.push_back(state_of(session, record));
  }
  session.desk->begin_listing(desk_gpus(session));
  if (publish) state.publish(std::move(gpus), {{"beats", session.desk->beats_json()}});
  return {};
}

// Takes beats in until then; a signal or the command's end comes first.
void listen_until(Session& session, Instant deadline) {
  if (session.beats == nullptr) {
    session.clock.sleep_until(deadline);
    return;
  }
  session.beats->serve_until(deadline,
                             [&](std::string_view text, const BeatServer::Sender& sender) {
                               session.desk->hear(text, sender);
                             });
}

// Ticks until the command ends; returns its exit code. Signals that were sent to us go on to it;
// those of the terminal it has got by itself.
Result<int> govern_until_end(Session& session, Child& child, StateFile& state,
                             const GuardLink* link) {
  const Duration period = policy_tick(session.policy.params);
  Instant next = session.clock.now();
  while (true) {
    next = std::max(next + period, session.clock.now());
    while (session.clock.now() < next) {
      if (const auto code = child.poll()) return *code;
      listen_until(session, next);
      if (const int signal = stop_signal(); signal != 0) {
        const bool from_terminal = signal == SIGINT || signal == SIGQUIT;
        if (stop_signal_was_sent() || !from_terminal) child.forward(signal);
        clear_stop_signal();
      }
    }
    if (const auto code = child.poll()) return *code;
    if (link != nullptr && link->guard_gone()) return Error{Errc::io, "the guard process is gone"};
    if (link != nullptr) link->beat();
    TRY(tick(session, state, false));
  }
}

GpuSummary summary_of(Session& session, std::size_t at) {
  GpuSummary out;
  OpenGpu& gpu = session.gpus.gpus[at];
  out.capability = gpu.source->capability();
  out.policy = session.policy.info->name;
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
  const Json document = {{"command", options.command},
                         {"exit_code", exit_code},
                         {"time_seconds", seconds(time)},
                         {"gpus", std::move(gpus)}};
  if (session.report) {
    const auto written = session.report->write(options.json ? json_text(document, 2) + "\n" : text);
    if (written.ok()) return {};
    warn("{}", text);  // better seen than lost
    return written;
  }
  if (options.json)
    print_json(document);
  else
    warn("{}", text);
  return {};
}

// A broken loop leaves the GPU to its own control; the command runs on to its end.
int wait_ungoverned(Session& session, Child& child, const GuardLink* link) {
  give_back(session);
  while (true) {
    if (link != nullptr) link->beat();
    if (const auto ended = child.poll()) return *ended;
    session.clock.sleep_until(session.clock.now() + std::chrono::seconds(1));
  }
}

Result<int> run_governed(const RunOptions& options, const GuardLink* link) {
  Session session;
  TRY(prepare(session, options, link));
  const Defer at_the_latest([&] { give_back(session); });
  for (const std::string& note : session.gpus.notes) warn("derate: {}\n", note);
  const auto as = options.as_root ? std::optional<RunAs>{} : TRY(user_behind_sudo());
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
    warn("derate: {}\n", started.message);
    return started.exit_code;
  }
  session.desk->command(started.child->pid());
  if (link != nullptr) link->started(started.child->pid());
  auto code = govern_until_end(session, *started.child, state, link);
  if (!code.ok()) {
    warn("derate: {}; governing ends, the command goes on\n", code.error().message);
    return wait_ungoverned(session, *started.child, link);
  }
  const auto promised = session.work;  // while it was there
  // From here on nothing costs the command its exit code.
  if (const auto last = tick(session, state, true); !last.ok())
    warn("derate: {}\n", last.error().message);
  session.work = promised;
  const Duration time = session.clock.now() - begin;
  give_back(session);
  if (const auto reported = report(session, options, *code, time); !reported.ok())
    warn("derate: {}\n", reported.error().message);
  return *code;
}

// Prints why Derate itself failed; the code that env(1) has for that.
int run_failed(const Error& error) {
  warn("derate: {}\n", error.message);
  return exit_code::kRunFailed;
}

// Governs real GPUs in a worker process, so that whatever ends it, its guard restores them.
Result<int> run_under_guard(const RunOptions& options) {
  GuardOptions guard{
      .run_folder = run_directory(), .owner = kOwner, .ends_process = true, .adopt = true};
  GuardHooks hooks;
  hooks.work = [&](GuardLink& link) {
    const auto code = run_governed(options, &link);
    const auto shown = finish_output();
    if (!code.ok()) return run_failed(code.error());
    return *code == 0 && !shown.ok() ? run_failed(shown.error()) : *code;
  };
  hooks.left_over = left_by;
  hooks.restore = [](const std::string& uuid) {
    return restore_process(uuid, "derate run's guard", "the worker is gone");
  };
  hooks.tell = [](const std::string& text) { warn("derate: {}\n", text); };
  SystemClock clock;
  const GuardOutcome outcome = TRY(run_guarded(guard, hooks, clock));
  return outcome.child_lost ? exit_code::kRunFailed : outcome.exit_code;
}

Result<bool> writes_to_real_gpus(const RunOptions& options) {
  if (options.dry_run || !options.sim.chip.empty()) return false;
  return !TRY(load_settings(options.policy.config)).dry_run;
}

}  // namespace

Result<int> run_verb(const RunOptions& options) {
  const auto real = writes_to_real_gpus(options);
  if (!real.ok()) return run_failed(real.error());
  auto code = *real ? run_under_guard(options) : run_governed(options, nullptr);
  if (!code.ok()) return run_failed(code.error());
  return code;
}

}  // namespace derate::cli
