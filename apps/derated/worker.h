// What derated does between two waits: a round of its fleet, and of what is served beside it. One
// thread; nothing here waits for a GPU longer than the loop's patience.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "govern/fleet/fleet.h"
#include "govern/lateness.h"
#include "service/answers/advice_service.h"
#include "service/answers/attribution_service.h"
#include "service/answers/caller_role.h"
#include "service/answers/command_router.h"
#include "service/answers/config_service.h"
#include "service/answers/energy_service.h"
#include "service/answers/fleet_service.h"
#include "service/answers/forecast_service.h"
#include "service/answers/run_service.h"
#include "service/answers/token_book.h"
#include "service/answers/token_service.h"
#include "service/answers/tune_service.h"
#include "service/records/event_detector.h"
#include "service/records/event_log.h"
#include "service/records/history_service.h"
#include "service/records/snapshot.h"
#include "service/records/state_file.h"
#include "service/transport/control_socket.h"
#include "service/work/beat_socket.h"
#include "service/work/launch_socket.h"
#include "service/work/step_watch.h"
#include "service/work/workload_tracker.h"

namespace derate::cli {

struct WorkerOptions {
  FleetOptions fleet;
  std::string state_file;
  ModelFiles models = {};
  std::string tune_file = {};                       // of jobs that recur; empty: they are not kept
  WorkloadTracker::Options tracker = {};            // its log is the fleet's
  AttributionService::Options attribution = {};     // without a namer nothing is attributed
  HistoryService::Options history = {};             // its log is the fleet's
  EventLog::Options events = {};                    // its log, too; the history keeps them
  ConfigSource config = {};                         // of the settings; empty: of no file
  std::string token_file = {};                      // empty: there are no tokens
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
  // The GPUs are open.
  bool running() const { return fleet_.is_open(); }

  // A new configuration: GPUs that it does not change go on as they are. A GPU that a command gave
  // a policy keeps it, in the new envelope. What each setting changes is its scope
  // (setting_info.h).
  void reload(const Settings& settings);
  // The same of the files as they are now, and of the tokens. A sentence that says what has
  // changed. Errors: those of the files; what was in force stays.
  Result<std::string> reload_files();
  // What came to the beat socket (docs/heartbeats.md).
  void on_message(std::string_view text, const BeatServer::Sender& sender) {
    work_.on_message(text, sender);
  }
  // What came to the socket of launches (docs/progress.md).
  void on_launches(LaunchPage page, const LaunchServer::Sender& sender) {
    work_.on_launches(std::move(page), sender);
  }
  // What operators ask over the control socket (docs/control.md): done by the next step().
  CommandRouter& operators() { return operators_; }
  // What programs ask over the client socket (docs/energy.md).
  CommandRouter& clients() { return clients_; }
  Fleet& fleet() { return fleet_; }
  // Who may do what, and the tokens by which callers are believed: for any thread.
  const CallerRoles& roles() const { return roles_; }
  const TokenBook& tokens() const { return tokens_; }
  // Metrics have dcgm-exporter's names, too; for any thread.
  bool dcgm_names() const { return dcgm_names_; }
  // What has happened; for any thread to read.
  EventLog& events() { return events_; }
  // Its read_failed() is for any thread.
  HistoryService& history() { return history_; }
  // What is known now, of the last round; for any thread.
  const SnapshotBoard& board() const { return board_; }
  ~Worker();  // as stop(), where that was not called
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Answers the commands that no round will do any more.
  void refuse_commands();
  // Gives every GPU back. Errors: those of restoring; the journal has what is left.
  Result<void> stop();

 private:
  void obey();
  void round();
  void take_changes();
  void take_settings();
  void tell(EventKind kind, std::string message, EventFields fields = {});
  void tell_pauses();
  std::vector<WorkloadTracker::Gpu> work_gpus() const;
  void attribute();
  enum class Figures : std::uint8_t { as_before, counted_anew };
  void show();
  void take_snapshot(Figures loop);

  Log log_;
  Clock& clock_;
  StateFile state_;
  HistoryService history_;
  EventLog events_;  // and it outlive the fleet
  EventDetector detector_;
  ModelCacheProvider models_;  // outlives the fleet's policies
  Fleet fleet_;
  CommandRouter operators_{Role::admin}, clients_{Role::user};
  FleetService commands_;
  CallerRoles roles_;
  TokenBook tokens_;
  TokenService token_service_;
  ConfigService config_;
  std::atomic<bool> dcgm_names_{false};
  Lateness lateness_;
  SnapshotBoard board_;
  WorkloadTracker work_;
  StepWatch steps_;
  EnergyService energy_;
  TuneService tune_;
  RunService runs_;
  ForecastService forecasts_;
  AdviceService advice_;
  GpuTotalsTable totals_;
  TenantRows tenant_rows_;
  DaemonMeter daemon_;
  AttributionService attribution_;
  bool attributes_ = false;
  bool stopped_ = false, started_ = false, paused_ = false;
  std::uint64_t seen_ = 0;  // of the fleet's changes
};

}  // namespace derate::cli
