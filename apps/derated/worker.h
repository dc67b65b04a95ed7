// The daemon's round: governs the GPUs, then serves requests, attribution, records and metrics. It
// runs on one thread and waits for no GPU longer than the loop's patience.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "govern/fleet/fleet.h"
#include "govern/fleet/gpu_sleep.h"
#include "govern/lateness.h"
#include "service/answers/advice_service.h"
#include "service/answers/attribution_service.h"
#include "service/answers/caller_role.h"
#include "service/answers/config_service.h"
#include "service/answers/energy_service.h"
#include "service/answers/fleet_service.h"
#include "service/answers/forecast_service.h"
#include "service/answers/refusal_book.h"
#include "service/answers/request_desk.h"
#include "service/answers/run_service.h"
#include "service/answers/token_book.h"
#include "service/answers/token_service.h"
#include "service/answers/tune_service.h"
#include "service/records/event_detector.h"
#include "service/records/event_log.h"
#include "service/records/history_service.h"
#include "service/records/lost_policies.h"
#include "service/records/snapshot.h"
#include "service/records/state_file.h"
#include "service/scheduler/allocation_service.h"
#include "service/scheduler/pod_wishes.h"
#include "service/serving/service_book.h"
#include "service/workloads/beat_socket.h"
#include "service/workloads/launch_socket.h"
#include "service/workloads/step_watch.h"
#include "service/workloads/workload_tracker.h"

namespace derate::cli {

struct WorkerOptions {
  FleetOptions fleet;
  std::string state_file;
  ModelFiles models = {};
  std::string tune_file = {};                       // of jobs that recur; empty: they are not kept
  WorkloadTracker::Options tracker = {};            // its log is the fleet's
  AttributionService::Options attribution = {};     // without a namer nothing is attributed
  AllocationService::Options allocations = {};      // its log is the fleet's
  PodWishes::Options pods = {};                     // without `pods` no annotation counts
  HistoryService::Options history = {};             // its log is the fleet's
  EventLog::Options events = {};                    // its log, too; the history keeps them
  ConfigSource config = {};                         // of the settings; empty: of no file
  std::string token_file = {};                      // empty: there are no tokens
  GpuSleepOptions sleep = {};                       // `after` is the settings'
  std::vector<std::string> bus_ids = {};            // of the GPUs that may be asleep at the start
  std::vector<RecordSink> sinks = {};               // beside those of the services
  std::size_t tenant_rows = TenantRows::kMostRows;  // of a GPU, in metrics
  // Where databases are read and written; at_once where time is virtual.
  BackgroundWorker::Where stores = BackgroundWorker::Where::on_a_thread;
};

class Worker {
 public:
  // `clock` outlives the worker.
  Worker(WorkerOptions options, const Settings& settings, Clock& clock);

  // One round. Errors: the GPUs could not be opened at the start.
  Result<void> step();
  // When the next round is due: within a second, whatever the settings are, and at once where an
  // operator has asked for something.
  Instant next_due();
  // How many GPUs are governed; if none is and the configuration says govern, the reason.
  std::string status_sentence() const;
  // The GPUs are open, or asleep.
  bool running() const { return fleet_.is_open() || is_waking(); }

  // A new configuration: GPUs that it does not change go on as they are. A GPU that a command gave
  // a policy keeps it, in the new envelope. What each setting changes is its scope
  // (setting_info.h).
  void reload(const Settings& settings);
  // The same of the files as they are now, and of the tokens. A sentence that says what has
  // changed. Errors: those of the files; what was in force stays.
  Result<std::string> reload_files();
  // What came to the beat socket (docs/heartbeats.md).
  void on_message(std::string_view text, const BeatServer::Sender& sender) {
    if (is_heard(sender.uid, "beat.sock")) work_.tracker.on_message(text, sender);
  }
  // Users whose processes are on GPUs.
  std::set<uid_t> users() const { return work_.tracker.users(); }
  // What came to the socket of launches (docs/progress.md).
  void on_launches(LaunchPage page, const LaunchServer::Sender& sender) {
    if (is_heard(sender.uid, "launches.sock")) work_.tracker.on_launches(std::move(page), sender);
  }
  // What operators ask over the control socket (docs/control.md), and programs over the client
  // socket (docs/energy.md).
  RequestLines& operators() { return desk_.operator_lines; }
  RequestLines& clients() { return desk_.client_lines; }
  RequestDesk& desk() { return desk_; }
  Fleet& fleet() { return fleet_; }
  // Who may do what, and the tokens that are accepted: for any thread.
  const CallerRoles& roles() const { return callers_.roles; }
  const TokenBook& tokens() const { return callers_.tokens; }
  // The log of refused requests. Thread-safe.
  RefusalBook& refusals() { return callers_.refusals; }
  // Metrics have dcgm-exporter's names, too; for any thread.
  bool dcgm_names() const { return dcgm_names_; }
  bool dcgm_parts() const { return dcgm_parts_; }
  // What has happened; for any thread to read.
  EventLog& events() { return records_.events; }
  HistoryService& history() { return records_.history; }
  // What is known now, of the last round; for any thread.
  const SnapshotBoard& board() const { return records_.board; }
  ~Worker();  // as stop(), where that was not called
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Answers the commands that no round will do any more.
  void refuse_commands();
  // Gives every GPU back. A GPU that fails is tried again until `patience` has passed. Errors:
  // those of restoring; the journal keeps what is left.
  Result<void> stop(Duration patience = {});

 private:
  // What is known and what has happened. Each stands on those above it: events go to the history,
  // and what is detected to the events.
  struct Records {
    Records(const WorkerOptions& options, const Settings& settings, Clock& clock);
    StateFile state;
    HistoryService history;
    EventLog events;
    EventDetector detector;
    LostPolicies lost;
    GpuTotalsTable totals;
    TenantRows tenants;
    DaemonMeter daemon;
    Lateness lateness;
    SnapshotBoard board;
  };
  // Who may ask for what.
  struct Callers {
    CallerRoles roles;
    TokenBook tokens;
    RefusalBook refusals;
  };
  // Who works on the GPUs, and which of them go in step.
  struct Work {
    WorkloadTracker tracker;
    StepWatch steps = {};
  };
  // What answers requests: each adds its operations to the desk, and refers to the parts of `all`
  // that stand before it.
  struct Answers {
    Answers(Worker& all, const WorkerOptions& options, const Settings& settings);
    FleetService fleet;
    TokenService tokens;
    ConfigService config;
    EnergyService energy;
    TuneService tune;
    RunService runs;
    AllocationService allocations;
    PodWishes pods;
    ServiceBook services;
    ForecastService forecasts;
    AdviceService advice;
    AttributionService attribution;
  };
  // What has become of it.
  struct Course {
    bool stopped = false, started = false, paused = false;
    bool waking = false;  // the GPUs were asleep and are being opened
    std::optional<Instant> open_again;
    Instant wait_until{};       // until then requests wait for GPUs that wake up
    Instant stepped{};          // when the last round began
    std::uint64_t changes = 0;  // of the fleet, that are taken in
  };

  bool is_heard(uid_t uid, const char* door);
  void add_sinks(std::vector<RecordSink> others);
  void obey();
  void round();
  void take_changes();
  void take_settings();
  void tell(EventKind kind, std::string message, EventFields fields = {});
  void tell_pauses();
  void tell_lost_policies();
  bool is_waking() const;
  bool is_used(const ManagedGpu& gpu) const;
  std::vector<GpuSleep::Gpu> sleepy_gpus();
  void let_sleep();
  void close_to_sleep();
  void wake_up();
  std::vector<WorkloadTracker::Gpu> work_gpus() const;
  void attribute();
  enum class Figures : std::uint8_t { as_before, counted_anew };
  void show();
  void take_snapshot(Figures loop);

  // In this order: the records and the models outlive the fleet, whose audit entries and policies
  // refer to them; the desk outlives what answers, and all of it outlives the answers.
  Log log_;
  Clock& clock_;
  Records records_;
  ModelCacheProvider models_;
  Fleet fleet_;
  GpuSleep sleep_;
  RequestDesk desk_;
  Callers callers_;
  std::atomic<bool> dcgm_names_{false}, dcgm_parts_{false};
  Work work_;
  Answers answers_;
  bool attributes_ = false;  // there is a namer of tenants
  Course course_;
};

}  // namespace derate::cli
