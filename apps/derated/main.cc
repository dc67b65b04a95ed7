// derated: governs or observes the GPUs of a machine. This process is the guard; the worker, which
// has the GPUs, is its child.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "api.h"
#include "apps/common/open_gpus.h"
#include "base/background_worker.h"
#include "base/defer.h"
#include "base/exit_code.h"
#include "base/journald.h"
#include "base/log.h"
#include "base/outermost.h"
#include "base/service_notice.h"
#include "base/text.h"
#include "config/paths.h"
#include "govern/fleet/restore_left.h"
#include "govern/guard.h"
#include "govern/lease.h"
#include "govern/records_file.h"
#include "integ/kube/machine_tenants.h"
#include "integ/kube/pod_request_watch.h"
#include "integ/kube/unary_call.h"
#include "integ/runtime_power.h"
#include "integ/slurm/job_life.h"
#include "service/loop/event_loop.h"
#include "service/transport/people.h"
#include "service/transport/signals.h"
#include "service/transport/socket_closer.h"
#include "service/workloads/beat_socket.h"
#include "service/workloads/launch_socket.h"
#include "terminal/program_options.h"
#include "worker.h"

namespace derate::cli {
namespace {

// What else would end a process ends it in order: nothing leaves a GPU behind unrestored.
constexpr std::array kStop{SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};
constexpr std::array kReload{SIGHUP};

struct DaemonOptions {
  std::string config, records;
  double silence_s = 10, restore_s = 10;
};

using Priority = EventLoop::Priority;

HistoryService::Options history_options(const Settings& settings) {
  constexpr double kHour = 3600, kDay = 24 * kHour, kMegabyte = 1e6;
  HistoryService::Options out;
  if (settings.history.enabled) out.file = history_file();
  out.bounds = {.seconds_for = from_seconds(settings.history.seconds_hours * kHour),
                .minutes_for = from_seconds(settings.history.minutes_days * kDay),
                .hours_for = from_seconds(settings.history.hours_days * kDay),
                .most_bytes = std::int64_t(settings.history.most_mb * kMegabyte)};
  return out;
}

// Empty: annotations are not read.
std::function<PodRequests()> pod_requests(const Settings& settings, const Log& log) {
  if (settings.kubernetes.pods_socket.empty() || settings.pod_resources.empty()) return {};
  if (!can_call()) {
    log.info("annotations of pods are not read: this derated was built without libnghttp2");
    return {};
  }
  struct Watch {
    SystemClock clock;
    PodRequestWatch pods;
    Watch(PodSources sources, const Log& its_log) : pods(std::move(sources), clock, its_log) {}
  };
  const auto watch =
      std::make_shared<Watch>(PodSources{.pods_socket = settings.kubernetes.pods_socket,
                                         .resources_socket = settings.pod_resources,
                                         .prefix = settings.kubernetes.prefix},
                              log);
  return [watch] { return watch->pods.latest(); };
}

WorkerOptions worker_options(const DaemonOptions& options, const Settings& settings,
                             GuardLink& link, const Log& log) {
  WorkerOptions out{.state_file = "state.json", .models = {model_file(), simulated_model_file()}};
  out.fleet.journal = machine_journal();
  out.fleet.life = current_boot();
  out.fleet.run_folder = run_directory();
  out.fleet.audit = AuditLog::on_a_thread(audit_file());
  out.fleet.open = open_real_fleet(settings, log);
  out.fleet.leases = {[&link](const DomainId& domain) { return link.lease(domain); },
                      [&link](const DomainId& domain) { link.release(domain); },
                      [&link] { return link.take_lost(); }};
  out.fleet.log = log;
  // A round that goes well ends before the next beat is due.
  out.fleet.alive = [&link] {
    const Duration every = link.beat_every();
    if (SystemClock().now() - link.beaten() > every + every / 4) link.beat();
  };
  out.config = config_source(options.config);
  out.token_file = token_file();
  out.allocations.file = run_directory() + "/allocations.json";
  out.allocations.ended_file = job_file();
  out.allocations.notes = ended_jobs_directory();
  out.allocations.look = [](const SchedulerJob& job) {
    const auto seen = look_at_slurm_job({job.id, job.uid, job.node}, "/sys/fs/cgroup", "/proc");
    return JobLook{seen.lives, seen.suspended, seen.sets_clocks, seen.slurmd_runs};
  };
  out.pods.pods = pod_requests(settings, log);
  const PowerFiles files = power_files();
  out.bus_ids = nvidia_bus_ids(files);
  out.sleep.read = [files](const std::vector<std::string>& bus_ids, AskDriver ask) {
    std::vector<RuntimePower> states;
    for (const std::string& bus_id : bus_ids)
      states.push_back(read_runtime_power(files, bus_id, ask));
    return states;
  };
  out.tune_file = tune_file();
  out.attribution.name = machine_tenant_resolver(settings.pod_resources, log);
  out.attribution.file = usage_file();
  out.history = history_options(settings);
  out.tenant_rows = static_cast<std::size_t>(settings.metrics_tenants);
  return out;
}

// Opened before any worker, each of which goes on in it. Its times are those of CLOCK_MONOTONIC,
// which other programs can read, too. Empty: none wanted.
using Records = std::optional<RecordsFile>;
Result<Records> open_records(const std::string& path) {
  if (path.empty()) return Records{};
  return Records(TRY(RecordsFile::create(path, Instant{})));
}

void add_records_sink(WorkerOptions& worker, Records& records, const Log& log) {
  if (!records) return;
  records->write_on_a_thread();
  worker.sinks.push_back([&records, log, failed = false](const GpuRecord& each) mutable {
    const auto written = records->add(each.record);
    if (!written.ok() && !std::exchange(failed, true)) log.error(written.error().message);
  });
}

// Without it everything goes on but heartbeats.
std::unique_ptr<BeatServer> listen_for_beats(Clock& clock, const PersonOf& person,
                                             const SocketCloser& closer, const Log& log) {
  auto server = BeatServer::create(beat_socket(), clock, person, closer.hanging());
  if (server.ok()) return *std::move(server);
  log.warning("no heartbeats: " + server.error().message);
  return nullptr;
}

// Without it everything goes on but progress by launches (docs/progress.md).
std::unique_ptr<LaunchServer> listen_for_launches(const PersonOf& person,
                                                  const SocketCloser& closer, const Log& log) {
  auto server = LaunchServer::create(launch_socket(), person, closer.hanging());
  if (server.ok()) return *std::move(server);
  log.warning("no progress by launches: " + server.error().message);
  return nullptr;
}

// Without it everything goes on but what programs ask (docs/energy.md).
std::unique_ptr<ControlServer> listen_to_programs(Clock& clock,
                                                  const std::shared_ptr<SocketCloser>& closer,
                                                  const Log& log) {
  auto server = ControlServer::create(client_socket(), clock, Audience::everyone, closer);
  if (server.ok()) return *std::move(server);
  log.warning("no client socket: " + server.error().message);
  return nullptr;
}

// Without it everything goes on but what is asked over HTTP (docs/api.md).
std::unique_ptr<ApiServer> listen_to_http(const Settings& settings, const ApiParts& parts) {
  if (!settings.api) return nullptr;
  auto server = serve_api(parts);
  if (server.ok()) return *std::move(server);
  parts.log.warning("no API: " + server.error().message);
  return nullptr;
}

// Root and operators have places of their own, unless every user is an operator.
CallerShares caller_shares(const People& people, const Worker& worker) {
  const auto operates = [&worker](const Peer& peer) {
    const auto role = worker.roles().of(peer);
    return role == Role::operates || role == Role::admin;
  };
  CallerShares out{.person = people.person()};
  out.keeps_place = [operates](const Peer& peer) {
    const Peer nobody{.uid = static_cast<uid_t>(-1)};
    return operates(peer) && !operates(nobody);
  };
  return out;
}

// What the loop's callbacks work on.
struct Parts {
  const DaemonOptions& options;
  GuardLink& link;
  const Log& log;
  Clock& clock;
  People& people;
  Worker& worker;
  ControlServer& commands;
  BeatServer* beats;        // null: there are none
  LaunchServer* launches;   // null: there are none
  ControlServer* programs;  // null: there are none
  ApiServer* api;           // null: there is none
  EventLoop& loop;
  Instant round_ended = {};
  EventLoop::Timer next_round = {}, next_beat = {};
  std::string reported = {};      // the last status sent to the guard; empty: none yet
  Result<void> outcome = {};      // of the last round
  bool own_beats_failed = false;  // which is logged once
};

void serve_commands(const Parts& parts) { parts.worker.operators().serve(parts.commands); }

// A user without a socket of its own sends its beats to the socket of all.
void serve_beat_users(Parts& parts) {
  const auto opened = parts.beats->serve_users(parts.worker.users());
  if (opened.ok() || std::exchange(parts.own_beats_failed, true)) return;
  parts.log.warning("a user's heartbeats share the queue of all users: " + opened.error().message);
}

void serve_beats(const Parts& parts) {
  parts.beats->serve([&](std::string_view text, const BeatServer::Sender& sender) {
    parts.worker.on_message(text, sender);
  });
}

void serve_launches(const Parts& parts) {
  parts.launches->serve([&](LaunchPage page, const LaunchServer::Sender& sender) {
    parts.worker.on_launches(std::move(page), sender);
  });
}

// Sends the status that `systemctl status` shows.
void report_status(Parts& parts) {
  std::string now = parts.worker.status_sentence();
  std::replace(now.begin(), now.end(), '\n', ' ');
  if (now == parts.reported) return;
  parts.link.ready(now);
  parts.reported = std::move(now);
}

// The guard hears from the worker.
void beat_at(Parts& parts, Duration next) {
  parts.link.beat();
  parts.next_beat.set(parts.clock.now() + next);
}

// A beat that is due before the next round goes with this one: a machine that is idle wakes up
// once.
void beat_with_round(Parts& parts, Instant next_round) {
  const Duration every = parts.link.beat_every();
  if (next_round - parts.link.beaten() >= every) beat_at(parts, every + every / 4);
}

void do_round(Parts& parts) {
  parts.people.look(parts.clock.now());
  parts.outcome = parts.worker.step();
  parts.round_ended = parts.clock.now();
  if (!parts.outcome.ok()) return parts.loop.stop();
  serve_commands(parts);
  if (parts.worker.running()) report_status(parts);
  // Answers that a round has settled, and callers that wait for another one.
  if (parts.programs != nullptr) parts.worker.clients().serve(*parts.programs);
  if (parts.api != nullptr) parts.api->serve();
  // A round that takes longer than its period is due again at once, before any socket.
  if (parts.beats != nullptr) {
    serve_beat_users(parts);
    serve_beats(parts);
  }
  if (parts.launches != nullptr) serve_launches(parts);
  const Instant next = parts.worker.next_due();
  parts.next_round.set(next);
  beat_with_round(parts, next);
}

// sd-event could answer systemd's watchdog as well. That stays with the guard (hooks.alive): when
// this loop hangs, the guard kills the worker and restores its GPUs; systemd would kill both.
// A loop that turns and governs nothing is silent as well.
void beat(Parts& parts) {
  constexpr Duration kLongestWithoutRound = std::chrono::seconds(5);  // they come each second
  const Duration every = parts.link.beat_every();
  if (parts.clock.now() - parts.round_ended <= kLongestWithoutRound) return beat_at(parts, every);
  parts.next_beat.set(parts.clock.now() + every);
}

// A bad file keeps what is in force.
void reload(const Parts& parts) {
  const auto told = parts.worker.reload_files();
  if (told.ok())
    parts.log.info(*told);
  else
    parts.log.error("the old configuration stays: " + told.error().message);
}

// What a signal or a command has changed takes effect in a round at once.
Result<void> add_sources(Parts& parts) {
  EventLoop& loop = parts.loop;
  const auto round_now = [&parts] { parts.next_round.set(parts.clock.now()); };
  parts.next_beat = TRY(loop.add_timer(Priority::heartbeat, [&] { beat(parts); }));
  parts.next_round = TRY(loop.add_timer(Priority::round, [&] { do_round(parts); }));
  TRY(loop.add_signals(kStop, Priority::round, [&loop](int) { loop.stop(); }));
  TRY(loop.add_signals(kReload, Priority::round, [&parts, round_now](int) {
    reload(parts);
    round_now();
  }));
  TRY(loop.add_hangup(parts.link.fd(), Priority::round, [&loop] { loop.stop(); }));
  TRY(loop.add_descriptor(parts.commands.fd(), Priority::socket, [&parts, round_now] {
    serve_commands(parts);
    round_now();
  }));
  if (parts.beats != nullptr)
    TRY(loop.add_descriptor(parts.beats->fd(), Priority::socket, [&] { serve_beats(parts); }));
  if (parts.launches != nullptr)
    TRY(loop.add_descriptor(parts.launches->fd(), Priority::socket,
                            [&] { serve_launches(parts); }));
  if (parts.programs != nullptr)
    TRY(loop.add_descriptor(parts.programs->fd(), Priority::socket,
                            [&] { parts.worker.clients().serve(*parts.programs); }));
  if (parts.api != nullptr)
    TRY(loop.add_descriptor(parts.api->fd(), Priority::socket, [&parts] {
      parts.api->serve();
      parts.next_round.set(parts.worker.next_due());
    }));
  return {};
}

Result<void> work_until_stopped(const DaemonOptions& options, Records& records, GuardLink& link,
                                const Log& log) {
  SystemClock clock;
  const Defer at_the_end([&records] {
    if (records) records->finish();
  });
  const Settings settings = TRY(load_settings(options.config));
  // Created before a caller can connect: its threads inherit the descriptors that are open now.
  const auto closer = std::make_shared<SocketCloser>();
  const auto commands =
      TRY(ControlServer::create(control_socket(), clock, Audience::owner_and_root, closer));
  People people;
  const auto beats = listen_for_beats(clock, people.person(), *closer, log);
  const auto launches = listen_for_launches(people.person(), *closer, log);
  const auto programs = listen_to_programs(clock, closer, log);
  const auto loop = TRY(EventLoop::create());
  WorkerOptions how = worker_options(options, settings, link, log);
  add_records_sink(how, records, log);
  how.tracker.person = people.person();
  ApiServer* streams = nullptr;  // once there is one
  how.events.wake = [&streams] {
    if (streams != nullptr) streams->wake_streams();
  };
  Worker worker(std::move(how), settings, clock);
  const CallerShares shares = caller_shares(people, worker);
  if (programs != nullptr) programs->shares(shares);
  const auto api = listen_to_http(settings, {worker, clock, log, shares, closer});
  streams = api.get();
  const Defer no_streams([&streams] { streams = nullptr; });
  Parts parts{options,   link,      log,         clock,          people,
              worker,    *commands, beats.get(), launches.get(), programs.get(),
              api.get(), *loop,     clock.now()};
  TRY(add_sources(parts));
  beat(parts);
  parts.next_round.set(clock.now());
  TRY(loop->run());
  TRY(std::move(parts.outcome));
  worker.refuse_commands();
  worker.operators().answer_late(*commands);
  const bool alone = link.guard_gone();
  link.beat();  // giving back begins with all the time that the guard allows
  // If this process cannot restore a GPU now, the next start or `derate restore` does.
  auto restored = worker.stop(alone ? from_seconds(options.restore_s) : Duration{});
  link.beat();  // what is left to write has as much
  if (alone) log.error("the guard is gone: every setting that could be restored was restored");
  return restored;
}

int work(const DaemonOptions& options, Records& records, GuardLink& link, const Log& log) {
  block_signals(kStop);
  block_signals(kReload);
  const auto done = work_until_stopped(options, records, link, log);
  if (done.ok()) return exit_code::kOk;
  log.error(done.error().message);
  return exit_code_of(done.error().code);
}

// What an earlier process left, where the worker ended before it could look at it.
int restore_unseen(const GuardOptions& guard, const GuardHooks& hooks, Clock& clock) {
  RestoreRequest request{.open = open_to_restore,
                         .why = "derated has ended before it had its GPUs"};
  request.who = fmt::format("derated's guard, pid {}", ::getpid());
  request.patience = guard.restore_time;
  request.alive = hooks.alive;
  request.log = hooks.log;
  const auto all = restore_left(request, clock);
  if (!all.ok()) {
    hooks.log.error(all.error().message);
    return exit_code_of(all.error().code);
  }
  for (const auto& [domain, outcome, detail] : *all) {
    const std::string name = short_name(domain);
    if (outcome == Restored::Outcome::restored || outcome == Restored::Outcome::reset)
      hooks.log.info(fmt::format("{}: restored what an earlier process left: {}", name, detail),
                     {{"gpu", name}});
    else
      hooks.log.warning(fmt::format("{}: a journal is left: {}", name, detail), {{"gpu", name}});
  }
  const int code = exit_code_of(*all);
  // What a governor that lives has is its own to give back.
  return code == exit_code_of(Errc::busy) ? exit_code::kOk : code;
}

// If the lease's file was removed, a second daemon could start: takes it again. Returns the text to
// log.
std::string keep_alone(UniqueFd& alone, const std::string& who) {
  if (is_lease_of(alone.get(), run_directory(), "derated")) return "";
  auto anew = take_lease(run_directory(), "derated", who);
  if (!anew.ok()) return "";
  alone = *std::move(anew);
  return "derated's own lease was removed from the run folder: taken anew";
}

Result<int> run_daemon(const DaemonOptions& options, const Log& log) {
  TRY(load_settings(options.config));  // before anything is begun: the user is told at once
  TRY(make_run_directory());
  TRY(check_state_directory());
  SystemClock clock;
  const std::string who = fmt::format("derated, pid {}", ::getpid());
  auto alone = await_lease(clock, run_directory(), "derated", who, clock.now(), [] {});
  if (!alone.ok() && alone.error().code == Errc::busy)
    return Error{Errc::busy,
                 "one runs already: " + describe(lease_holder(run_directory(), "derated"))};
  if (!alone.ok()) return alone.error();
  GuardOptions guard{.run_folder = run_directory(), .owner = "derated", .ends_process = true};
  guard.silence = from_seconds(options.silence_s);
  guard.restore_time = from_seconds(options.restore_s);
  guard.stop_time = guard.silence + guard.restore_time;
  GuardHooks hooks;
  auto records = TRY(open_records(options.records));
  hooks.work = [&](GuardLink& link) {
    return run_outermost("derated", [&] { return work(options, records, link, log); });
  };
  hooks.left_over = left_by;
  hooks.tidy = remove_unfinished_journals;
  hooks.restore = [&log](const DomainId& domain) {
    return restore_process(domain, open_to_restore, "derated's guard", "the worker is gone", log);
  };
  ServiceNotices notices;
  hooks.alive = [&notices] { notices.alive(); };
  hooks.each_second = [&] { return keep_alone(*alone, who); };
  bool ready = false;
  hooks.ready = [&ready, &notices](std::string_view status) {
    notices.ready(status);
    ready = true;
  };
  hooks.log = log;
  const GuardOutcome outcome = TRY(run_guarded(guard, hooks, clock));
  int code = outcome.exit_code;
  if (code == exit_code::kOk && outcome.worker_failed) code = exit_code::kFailure;
  // If the worker ended because another daemon has its socket, that daemon has the GPUs.
  if (ready || !outcome.not_restored.empty() || code == exit_code_of(Errc::busy)) return code;
  const int unseen = restore_unseen(guard, hooks, clock);
  return code == exit_code::kOk ? unseen : code;
}

// Without a systemd unit: the limit of LimitNOFILE, whose sum derated.service has.
void raise_file_limit() {
  constexpr rlim_t kFiles = 8192;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kFiles) return;
  limit.rlim_cur = std::min(kFiles, limit.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

ProgramUsage usage_of(DaemonOptions& options, bool& check) {
  constexpr std::pair kSeconds{0.5, 600.0};
  return {.name = "derated",
          .version = DERATE_VERSION,
          .summary = "Governs or observes the GPUs of this machine; see derated(8).",
          .footer =
              "Examples:\n  derated --check-config\n  derated --config ./derate.toml\n\n"
              "Signals: SIGTERM and SIGINT give everything back and end it, SIGHUP reloads the\n"
              "configuration. `derate status` and `derate top` show what it does.\n",
          .options = {
              {"-c,--config", "FILE",
               "Configuration file; default: $DERATE_CONFIG, else /etc/derate/derate.toml",
               &options.config},
              {"--records", "FILE",
               "Write every tick of every GPU as a line of JSON; it grows without end",
               &options.records},
              {"--check-config", "", "Check the configuration and exit", &check},
              {"--silence", "FLOAT", "Seconds of silence after which the guard kills the worker",
               &options.silence_s, kSeconds},
              {"--restore-time", "FLOAT", "Seconds the guard gives a GPU's restoring",
               &options.restore_s, kSeconds},
          }};
}

int main_of(int argc, char** argv) {
  DaemonOptions options;
  bool check = false;
  if (const auto end = read_options(usage_of(options, check), argc, argv)) return *end;
  const Log log = program_log("derated", journald_writer("derated", journald_socket()));
  if (check) {
    const auto settings = load_settings(options.config);
    if (settings.ok()) return exit_code::kOk;
    log.error(settings.error().message);
    return exit_code_of(settings.error().code);
  }
  raise_file_limit();
  const auto code = run_daemon(options, log);
  if (code.ok()) return *code;
  log.error(code.error().message);
  return exit_code_of(code.error().code);
}

}  // namespace
}  // namespace derate::cli

int main(int argc, char** argv) {
  derate::open_standard_files();
  derate::ignore_signals_of_writes();
  return derate::run_outermost("derated", [&] { return derate::cli::main_of(argc, argv); });
}
