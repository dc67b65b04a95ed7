#include "run_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "config/paths.h"
#include "govern/fleet/policy_choice.h"
#include "govern/fleet/restore_left.h"
#include "gpu_choice.h"
#include "policy/registry/registry.h"
#include "run_command.h"
#include "run_report.h"
#include "service/answers/run_service.h"
#include "service/transport/daemon_call.h"
#include "service/transport/subordinate_ids.h"
#include "store/audit.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// What the run's GPUs are called among those that are tuned.
constexpr const char* kTuning = "run";

// Returns the chosen GPUs in their order. The others stay with the session.
Result<OpenGpus> split_off(RunSession& session, OpenGpus all, const std::string& choice) {
  std::vector<GpuId> ids;
  for (const OpenGpu& gpu : all.gpus) ids.push_back(gpu.source->capability().id);
  OpenGpus out{
      .gpus = {}, .driver_version = std::move(all.driver_version), .notes = std::move(all.notes)};
  for (const int at : TRY(select_gpus(ids, choice)))
    out.gpus.push_back(std::move(all.gpus[static_cast<std::size_t>(at)]));
  for (OpenGpu& gpu : all.gpus)
    if (gpu.source != nullptr) session.others.push_back(std::move(gpu));
  return out;
}

Result<OpenGpus> open_chosen(RunSession& session, const Settings& settings,
                             const RunOptions& options, const ChosenGpus& chosen, GuardLink* link) {
  if (!backend_capabilities(options.sim).hardware) session.sim = TRY(find_sim_setup(options.sim));
  auto choice = chosen.list;
  if (!choice && !settings.gpus.empty()) choice = settings.gpus;
  session.follows = !choice && !session.tuned;
  GpuRequest request{.sim = options.sim,
                     .patience = Patience::of_loop,
                     .workload = SimWorkload::later,
                     .dcgm = dcgm_connection(settings)};
  // Many GPUs take longer to open than the guard lets a worker be silent.
  request.alive = [link] {
    if (link != nullptr) link->beat();
  };
  if (session.sim) {
    request.gpus = choice.value_or("");
    return open_gpus(request, session.clock);
  }
  OpenGpus all = TRY(open_gpus(request, session.clock));
  std::string named = choice.value_or("");
  if (named.find("MIG-") != std::string::npos)
    named = TRY(gpus_by_uuid(named, ForeignName::refused, request.alive));
  return split_off(session, std::move(all), named);
}

Result<std::unique_ptr<BeatServer>> beat_server(Clock& clock) {
  TRY(make_run_directory());
  return BeatServer::create(fmt::format("{}/beat-{}.sock", run_directory(), ::getpid()), clock);
}

Result<std::unique_ptr<LaunchServer>> launch_server() {
  TRY(make_run_directory());
  return LaunchServer::create(fmt::format("{}/launches-{}.sock", run_directory(), ::getpid()));
}

// Who may not keep models does without.
SqliteModelCache::OnError log_of_models(const Log& log) {
  return [log](const Error& error) {
    if (error.code != Errc::no_permission) log.warning("models of work: " + error.message);
  };
}

// None in a folder that another user could have put there.
ModelFiles files_of_models(const Log& log) {
  if (const auto state = check_state_directory(); !state.ok()) {
    log.warning("models of work: " + state.error().message);
    return {};
  }
  return {model_file(), simulated_model_file()};
}

// `link` is null where nothing real is written: simulated GPUs, dry runs.
FleetOptions fleet_options(RunSession& session, GuardLink* link) {
  FleetOptions out{.owner = kRunOwner, .life = current_boot(), .run_folder = run_directory()};
  out.log = session.log;
  out.models = &*session.models;
  out.every_round = true;
  if (link == nullptr) return out;
  out.alive = [link] { link->beat(); };
  out.journal = machine_journal();
  out.audit = AuditLog::on_a_thread(audit_file());
  out.leases = {[link](const DomainId& domain) { return link->lease(domain); },
                [link](const DomainId& domain) { link->release(domain); },
                [link] { return link->take_lost(); }};
  return out;
}

// What an earlier process left on these GPUs is restored before anything is written to them.
Result<void> check_restored(const RunSession& session) {
  for (const ManagedGpu& gpu : session.gpus())
    if (gpu.leftover.owed)
      return Error{Errc::io, gpu.uuid() + ": " + gpu.leftover.failure}.with(
          "what an earlier process left");
  return {};
}

Result<void> govern(RunSession& session, std::size_t at) {
  TRY(session.fleet->assign(at, {.origin = origins::command,
                                 .who = kRunOwner,
                                 .policy = PolicyAssignment{session.policy, session.dry_run}}));
  session.ledgers[at].emplace(session.gpus()[at].envelope->highest());
  session.not_governed[at].clear();
  return {};
}

std::string other_user(const RunSession& session, const std::string& uuid) {
  const auto other = session.tracker->users_of(uuid).other_than(session.uid);
  return other && !session.shared ? fmt::format("a process of user {} works there, too", *other)
                                  : "";
}

// GPUs where the command's work has begun; and where another user's has, it ends.
void follow_work(RunSession& session) {
  if (session.tuned || session.sim) return;
  for (std::size_t at = 0; at < session.gpus().size(); ++at) {
    const ManagedGpu& gpu = session.gpus()[at];
    const std::string other = other_user(session, gpu.uuid());
    if (gpu.governed && !other.empty()) {
      session.not_governed[at] = "not governed any more: " + other + " (--shared)";
      session.log.warning(fmt::format("GPU {}: {}", gpu.id().index, session.not_governed[at]));
      (void)session.fleet->release(at, kRunOwner);
    } else if (session.follows && !session.ledgers[at] && other.empty() &&
               session.tracker->command_works_on(gpu.uuid())) {
      if (const auto done = govern(session, at); !done.ok())
        session.not_governed[at] = done.error().message;
    }
  }
}

// Notes for each GPU whether the command or other processes work there; the account depends on
// that.
void see_work(RunSession& session) {
  if (session.sim) return;
  for (std::size_t at = 0; at < session.gpus().size(); ++at) {
    const std::string& uuid = session.gpus()[at].uuid();
    WorkSeen& seen = session.seen[at];
    seen.of_command = seen.of_command || session.tracker->command_works_on(uuid);
    seen.of_others = seen.of_others || session.tracker->others_work_on(uuid, session.command);
    seen.of_anybody = seen.of_anybody || !session.tracker->users_of(uuid).uids.empty();
  }
  for (const OpenGpu& gpu : session.others) {
    const GpuId& id = gpu.source->capability().id;
    if (session.elsewhere.contains(id.uuid) || !session.tracker->command_works_on(id.uuid))
      continue;
    session.elsewhere.insert(id.uuid);
    session.log.warning(works_elsewhere(id));
  }
}

Result<void> assign(RunSession& session, const std::optional<TuningPlan>& tuning) {
  if (session.follows) return {};
  if (!tuning) {
    for (std::size_t at = 0; at < session.gpus().size(); ++at) TRY(govern(session, at));
    return {};
  }
  TuningPlan plan = *tuning;
  plan.gpus.clear();
  for (const ManagedGpu& gpu : session.gpus()) plan.gpus.push_back(gpu.uuid());
  TRY(session.fleet->take_for_tuning(kTuning, plan));
  for (std::size_t at = 0; at < session.gpus().size(); ++at)
    session.ledgers[at].emplace(session.gpus()[at].envelope->highest());
  return {};
}

void add_sinks(RunSession& session) {
  session.fleet->add_sink([&session](const GpuRecord& each) {
    auto& ledger = session.ledgers[static_cast<std::size_t>(each.record.gpu)];
    if (ledger && each.gpu.governed) ledger->add(each.record);
    if (session.records.file && session.records.written.ok())
      session.records.written = session.records.file->add(each.record);
    if (session.engine != nullptr) session.engine->take(each);
    if (session.windows != nullptr && each.record.sample)
      session.windows->service().take(each.gpu.uuid(), *each.record.sample);
  });
}

std::vector<WorkloadTracker::Gpu> tracked_gpus(const RunSession& session) {
  std::vector<WorkloadTracker::Gpu> out;
  const auto delta = session.tuned ? std::nullopt : policy_delta(session.policy);
  for (const ManagedGpu& gpu : session.gpus())
    out.push_back({gpu.open.source.get(), gpu.opening, delta});
  // Numbers from the upper end, which no opening has.
  std::uint64_t opening = std::numeric_limits<std::uint64_t>::max();
  for (const OpenGpu& gpu : session.others) out.push_back({gpu.source.get(), opening--, {}});
  return out;
}

// A command on simulated GPUs does not work there: it is their own work that counts.
void report_simulated_work(RunSession& session) {
  if (!session.tuned || !session.sim) return;
  double done = 0;
  for (const ManagedGpu& gpu : session.gpus()) done += gpu.open.sim->work_done();
  (void)session.fleet->report_work(kTuning, {.run = 1, .done = done, .time = session.clock.now()})
      .ok();
}

std::set<std::size_t> governed_places(const RunSession& session) {
  std::set<std::size_t> out;
  for (std::size_t at = 0; at < session.gpus().size(); ++at)
    if (session.gpus()[at].governed && at < session.work.size()) out.insert(at);
  return out;
}

GpuSummary summary_of(RunSession& session, std::size_t at) {
  const ManagedGpu& gpu = session.gpus()[at];
  GpuSummary out;
  out.capability = gpu.open.source->capability();
  out.policy = session.tuned ? "tune" : session.policy.info->name;
  out.hears_beats = !session.tuned && session.policy.info->hears_beats;
  if (!session.tuned) out.promise = promised_performance(session.policy, session.work[at].status);
  out.dry_run = session.dry_run;
  if (gpu.open.sim != nullptr)
    out.twin = session.baselines[at]->compare(
        *gpu.open.sim, gpu.open.sim->energy() - session.sim_energy_at_start[at]);
  return out;
}

}  // namespace

void give_back(RunSession& session, Duration patience) {
  if (!session.fleet || std::exchange(session.given_back, true)) return;
  const auto restored = session.fleet->restore("the run has ended", patience);
  if (!restored.ok()) session.log.error("not restored: " + restored.error().message);
}

void listen_for_beats(RunSession& session) {
  WorkloadTracker::Options how;
  how.log = session.log;
  const auto ids = std::make_shared<SubordinateIds>();
  ids->renew();
  how.person = [ids](std::uint32_t uid) { return ids->person_of(uid); };
  session.tracker.emplace(session.clock, how);
  session.tracker->list_every(from_seconds(session.fleet->settings().processes_every_s));
  session.tracker->rules(session.fleet->settings());
  // Nothing is governed yet, and who starts a command wants to know of a rule that cannot hold.
  session.tracker->await_users(std::chrono::seconds(1));
  if (auto server = beat_server(session.clock); server.ok())
    session.beats = *std::move(server);
  else
    session.log.warning("no heartbeats: " + server.error().message);
  if (!session.counts_launches) return;
  if (auto server = launch_server(); server.ok())
    session.launches = *std::move(server);
  else
    session.log.warning("no progress by launches: " + server.error().message);
}

void listen_for_windows(RunSession& session) {
  if (find_daemon().ok()) return;  // programs find its socket
  const Duration period = session.tuned ? TunedRun::kTick : policy_tick(session.policy.params);
  auto windows = std::make_unique<CommandWindows>(
      session.clock, std::max<Duration>(std::chrono::seconds(2), 2 * period));
  auto opened = make_run_directory();
  if (opened.ok())
    opened =
        windows->open(fmt::format("{}/run-{}.sock", run_directory(), ::getpid()), session.clock);
  if (!opened.ok()) {
    session.log.warning("no windows of energy: " + opened.error().message);
    return;
  }
  windows->service().here(session.fleet->ids());
  session.windows = std::move(windows);
}

Result<void> check_alone(RunSession& session) {
  if (session.sim || session.shared || session.follows) return {};
  const Instant until = session.clock.now() + std::chrono::seconds(2);
  do {
    (void)session.tracker->update(tracked_gpus(session));
    session.tracker->begin_listing(tracked_gpus(session));
    session.clock.sleep_until(session.clock.now() + std::chrono::milliseconds(5));
  } while (!session.tracker->has_listed() && session.clock.now() < until);
  for (const ManagedGpu& gpu : session.gpus())
    if (const std::string other = other_user(session, gpu.uuid()); !other.empty())
      return Error{Errc::busy, fmt::format("GPU {}: {}; the command was not started (--shared "
                                           "governs the GPU all the same)",
                                           gpu.id().index, other)};
  return {};
}

Result<void> prepare(RunSession& session, const RunOptions& options, const ChosenGpus& chosen,
                     const std::optional<TuningPlan>& tuning, GuardLink* link) {
  Settings settings = TRY(load_settings(options.policy.config));
  session.tuned = tuning.has_value();
  session.dry_run = options.dry_run || settings.dry_run;
  if (session.tuned && session.dry_run)
    return Error{Errc::bad_config, "governor.dry_run: tuning is nothing without a write"};
  // Told before a GPU is opened.
  PolicyOptions chosen_policy = options.policy;
  if (!options.engine.promise.empty() && chosen_policy.policy.empty()) chosen_policy.policy = "slo";
  if (!session.tuned) session.policy = TRY(choose_policy(chosen_policy, settings));
  if (!options.engine.metrics.empty())
    session.engine = TRY(RunEngine::start(options.engine, session.clock));
  OpenGpus opened = TRY(open_chosen(session, settings, options, chosen, link));
  session.models.emplace(files_of_models(session.log), session.clock, log_of_models(session.log));
  settings.govern = false;  // these are governed for the command alone
  session.fleet.emplace(fleet_options(session, link), settings, session.clock);
  session.fleet->open(std::move(opened));
  TRY(check_restored(session));
  session.ledgers.resize(session.gpus().size());
  session.seen.resize(session.gpus().size());
  session.not_governed.assign(session.gpus().size(),
                              "not governed: no process of the command was seen there (-i and "
                              "--all name GPUs)");
  // The only one is meant, and a container's processes have numbers that the driver does not tell.
  if (session.gpus().size() == 1) session.follows = false;
  TRY(assign(session, tuning));
  add_sinks(session);
  if (!options.report.empty()) session.report = TRY(TextFile::create(options.report));
  if (!options.records.empty()) {
    session.records.file = TRY(RecordsFile::create(options.records, session.clock.now()));
    session.records.file->write_on_a_thread();
  }
  for (const ManagedGpu& gpu : session.gpus())
    if (gpu.open.sim != nullptr)
      session.baselines.push_back(std::make_unique<BaselineGpu>(
          *session.sim->chip, static_cast<std::uint64_t>(options.sim.seed + gpu.id().index)));
  return {};
}

void start_simulated_work(RunSession& session) {
  for (std::size_t i = 0; i < session.baselines.size(); ++i) {
    SimGpu& gpu = *session.gpus()[i].open.sim;
    gpu.start(session.sim->workload, Duration::zero());
    session.sim_energy_at_start.push_back(gpu.energy());
    session.baselines[i]->start(session.sim->workload);
  }
}

void publish(const RunSession& session, StateFile& state) {
  if (!state.due()) return;
  Snapshot now{.beats = session.tracker->beats()};
  for (const ManagedGpu& gpu : session.gpus())
    if (auto known = snapshot_of(gpu)) now.gpus.push_back(*std::move(known));
  state.publish(now);
}

Result<void> tick(RunSession& session, StateFile& state, ReadDepth depth) {
  session.work = session.steps.with_steps(session.tracker->update(tracked_gpus(session)),
                                          session.clock.now(), *session.tracker, session.gpus());
  if (session.engine != nullptr) session.engine->add_to(session.work, governed_places(session));
  session.fleet->set_work(session.work);
  see_work(session);
  follow_work(session);
  session.fleet->tick(depth);
  TRY(std::move(session.records.written));
  report_simulated_work(session);
  session.fleet->maintain();
  session.tracker->begin_listing(tracked_gpus(session));
  if (session.windows != nullptr) session.windows->answer();
  publish(session, state);
  return {};
}

Result<void> report(RunSession& session, const RunOptions& options, int exit_code, Duration time,
                    const std::function<bool()>& goes_on) {
  RunAccount account{.exit_code = exit_code,
                     .time = time,
                     .gpus = {},
                     .tuned = session.fleet->tuned(kTuning),
                     .now = session.clock.now()};
  const bool any = std::any_of(session.ledgers.begin(), session.ledgers.end(),
                               [](const auto& ledger) { return ledger.has_value(); });
  for (std::size_t i = 0; i < session.ledgers.size(); ++i) {
    const WorkSeen& seen = session.seen[i];
    if (session.ledgers[i] && !seen.of_command && (seen.of_anybody || !session.elsewhere.empty()))
      account.notes.push_back(command_not_seen(session.gpus()[i].id().index, seen.of_others));
    if (session.ledgers[i] && (seen.of_command || !seen.of_others))
      account.gpus.push_back({summary_of(session, i), session.ledgers[i]->figures()});
    // Of GPUs that were not named, those that the command left alone say nothing.
    const bool left_alone = session.follows && !session.ledgers[i] && any;
    if (!session.gpus()[i].governed && !left_alone)
      account.notes.push_back(
          fmt::format("GPU {}: {}", session.gpus()[i].id().index, session.not_governed[i]));
  }
  if (session.engine != nullptr) account.engine = session.engine->view();
  for (const OpenGpu& gpu : session.others)
    if (const GpuId& id = gpu.source->capability().id; session.elsewhere.contains(id.uuid))
      account.notes.push_back(works_elsewhere(id));
  return write_account(account, options, session.report, goes_on);
}

}  // namespace derate::cli
