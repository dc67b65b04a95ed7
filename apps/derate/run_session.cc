#include "run_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/json.h"
#include "config/paths.h"
#include "govern/fleet/policy_choice.h"
#include "gpu_choice.h"
#include "run_command.h"
#include "simulated.h"
#include "store/audit.h"
#include "summary.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// What the run's GPUs are called among those that are tuned.
constexpr const char* kTuning = "run";

Result<OpenGpus> open_gpus(RunSession& session, const Settings& settings, const RunOptions& options,
                           GuardLink* link) {
  if (!options.sim.chip.empty()) {
    session.sim = TRY(find_sim_setup(options.sim));
    return open_sim_gpus(*session.sim, options.sim, options.gpus.named, session.clock);
  }
  const std::string choice = TRY(chosen_gpus(options.gpus, settings.gpus));
  // Many GPUs take longer to open than the guard lets a worker be silent.
  return open_nvml_gpus(choice, kLoopPatience, [link] {
    if (link != nullptr) link->beat();
  });
}

Result<std::unique_ptr<BeatServer>> beat_server(Clock& clock) {
  TRY(make_run_directory());
  return BeatServer::create(fmt::format("{}/beat-{}.sock", run_directory(), ::getpid()), clock);
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
  out.journal = Journal(journal_directory());
  out.audit = AuditLog(audit_file());
  out.leases = {[link](const std::string& uuid) { return link->lease(uuid); },
                [link](const std::string& uuid) { link->release(uuid); }};
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

Result<void> assign(RunSession& session, const std::optional<TuningPlan>& tuning) {
  if (!tuning) {
    for (std::size_t at = 0; at < session.gpus().size(); ++at)
      TRY(session.fleet->assign(at, {session.policy, session.dry_run}, kRunOwner));
    return {};
  }
  TuningPlan plan = *tuning;
  plan.gpus.clear();
  for (const ManagedGpu& gpu : session.gpus()) plan.gpus.push_back(gpu.uuid());
  return session.fleet->take_for_tuning(kTuning, plan);
}

void add_sinks(RunSession& session) {
  for (const ManagedGpu& gpu : session.gpus())
    session.ledgers.emplace_back(gpu.envelope->highest());
  session.fleet->add_sink([&session](const GpuRecord& each) {
    session.ledgers[static_cast<std::size_t>(each.record.gpu)].add(each.record);
    if (session.records && session.recorded.ok())
      session.recorded = session.records->add(each.record);
  });
}

std::vector<WorkloadTracker::Gpu> tracked_gpus(const RunSession& session) {
  std::vector<WorkloadTracker::Gpu> out;
  const auto delta = session.tuned ? std::nullopt : policy_delta(session.policy);
  for (const ManagedGpu& gpu : session.gpus())
    out.push_back({gpu.open.source.get(), gpu.opening, delta});
  return out;
}

// A command on simulated GPUs does not work there: it is their own work that counts.
void report_simulated_work(RunSession& session) {
  if (!session.tuned || !session.sim) return;
  double done = 0;
  for (const ManagedGpu& gpu : session.gpus()) done += gpu.open.sim->work_done();
  (void)session.fleet->report_work(kTuning, {1, done, session.clock.now()}).ok();
}

GpuSummary summary_of(RunSession& session, std::size_t at) {
  const ManagedGpu& gpu = session.gpus()[at];
  GpuSummary out;
  out.capability = gpu.open.source->capability();
  out.policy = session.tuned ? "tune" : session.policy.info->name;
  if (!session.tuned) out.promise = promised_performance(session.policy, session.work[at].status);
  out.dry_run = session.dry_run;
  if (gpu.open.sim != nullptr)
    out.twin = session.baselines[at]->compare(
        *gpu.open.sim, gpu.open.sim->energy() - session.sim_energy_at_start[at]);
  return out;
}

}  // namespace

void give_back(RunSession& session) {
  if (!session.fleet || std::exchange(session.given_back, true)) return;
  const auto restored = session.fleet->restore("the run has ended");
  if (!restored.ok()) session.log.error("not restored: " + restored.error().message);
}

void listen_for_beats(RunSession& session) {
  WorkloadTracker::Options how;
  how.log = session.log;
  session.tracker.emplace(session.clock, how);
  session.tracker->list_every(from_seconds(session.fleet->settings().processes_every_s));
  session.tracker->rules(session.fleet->settings());
  // Nothing is governed yet, and who starts a command wants to know of a rule that cannot hold.
  session.tracker->await_users(std::chrono::seconds(1));
  if (auto server = beat_server(session.clock); server.ok())
    session.beats = *std::move(server);
  else
    session.log.warning("no heartbeats: " + server.error().message);
}

Result<void> prepare(RunSession& session, const RunOptions& options,
                     const std::optional<TuningPlan>& tuning, GuardLink* link) {
  Settings settings = TRY(load_settings(options.policy.config));
  session.tuned = tuning.has_value();
  session.dry_run = options.dry_run || settings.dry_run;
  if (session.tuned && session.dry_run)
    return Error{Errc::bad_config, "governor.dry_run: tuning is nothing without a write"};
  // Told before a GPU is opened.
  if (!session.tuned) session.policy = TRY(choose_policy(options.policy, settings));
  OpenGpus opened = TRY(open_gpus(session, settings, options, link));
  session.models.emplace(files_of_models(session.log), session.clock, log_of_models(session.log));
  settings.govern = false;  // these are governed for the command alone
  session.fleet.emplace(fleet_options(session, link), settings, session.clock);
  session.fleet->open(std::move(opened));
  TRY(check_restored(session));
  TRY(assign(session, tuning));
  add_sinks(session);
  if (!options.report.empty()) session.report = TRY(TextFile::create(options.report));
  if (!options.records.empty())
    session.records = TRY(RecordsFile::create(options.records, session.clock.now()));
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
  session.work = session.tracker->update(tracked_gpus(session));
  session.fleet->set_work(session.work);
  session.fleet->tick(depth);
  TRY(std::move(session.recorded));
  report_simulated_work(session);
  session.fleet->maintain();
  session.tracker->begin_listing(tracked_gpus(session));
  publish(session, state);
  return {};
}

Result<void> report(RunSession& session, const RunOptions& options, int exit_code, Duration time) {
  Json gpus = Json::array();
  std::string text = fmt::format("\nderate: the command ended with exit code {} after {}\n",
                                 exit_code, duration_text(time));
  std::vector<GpuAccount> accounts;
  for (std::size_t i = 0; i < session.ledgers.size(); ++i) {
    accounts.push_back({summary_of(session, i), &session.ledgers[i]});
    text += summary_text(accounts.back().summary, session.ledgers[i]);
    gpus.push_back(summary_json(accounts.back().summary, session.ledgers[i]));
  }
  mark_simulated(gpus);
  Json document = {{"schema", "derate/run/1"},
                   {"command", options.command},
                   {"exit_code", exit_code},
                   {"time_seconds", seconds(time)},
                   {"gpus", std::move(gpus)}};
  if (const TunedRun* run = session.fleet->tuned(kTuning)) {
    text += tuning_text(*run, session.clock.now());
    document["schema"] = "derate/tune-run/1";
    document["tuning"] = tuning_json(*run, session.clock.now());
  } else {
    const std::string sentence = closing_sentence(accounts);
    text += sentence + "\n";
    document["sentence"] = sentence;
  }
  if (session.report) {
    auto written = session.report->write(options.json ? json_text(document, 2) + "\n" : text);
    if (written.ok()) return {};
    write_text(stderr, text);  // better seen than lost
    return written;
  }
  // Standard output is the command's.
  write_text(stderr, options.json ? printing_json(json_text(document, 2)) + "\n" : text);
  return {};
}

}  // namespace derate::cli
