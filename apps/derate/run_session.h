// The session of a command under `derate run` or `derate tune run`: the GPUs that are governed, or
// tuned, while it runs, and the reports of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/common/open_gpus.h"
#include "command_options.h"
#include "device/sim/baseline_gpu.h"
#include "govern/fleet/fleet.h"
#include "govern/guard.h"
#include "govern/ledger.h"
#include "govern/records_file.h"
#include "gpu_choice.h"
#include "run_engine.h"
#include "service/answers/command_windows.h"
#include "service/records/state_file.h"
#include "service/workloads/beat_socket.h"
#include "service/workloads/launch_socket.h"
#include "service/workloads/step_watch.h"
#include "service/workloads/workload_tracker.h"

namespace derate::cli {

// In leases, journals and the audit log.
inline constexpr const char* kRunOwner = "derate run";

// Which processes have been seen on a GPU.
struct WorkSeen {
  bool of_command = false;  // the command, or a descendant
  bool of_others = false;   // a known user's process that is not the command's
  bool of_anybody = false;
};

// Everything that lives while the command runs.
struct RunSession {
  Log log;
  SystemClock clock;
  ChosenPolicy policy;
  bool tuned = false;  // in place of the policy
  bool dry_run = false;
  std::optional<SimSetup> sim;
  std::optional<ModelCacheProvider> models;  // outlives the fleet's policies
  std::optional<Fleet> fleet;
  std::vector<std::unique_ptr<BaselineGpu>> baselines;
  std::vector<Joules> sim_energy_at_start;
  // The command's user: others' processes are not governed with it, unless that was asked for.
  std::uint32_t uid = 0;
  ProcessId command = {};  // before the command begins, all processes count as others'
  bool shared = false;
  // Nobody has said which GPUs: each is governed from when the command works there.
  bool follows = false;
  // In the order of the GPUs: empty, and why, before it is governed.
  std::vector<std::optional<Ledger>> ledgers;
  std::vector<std::string> not_governed;
  std::vector<WorkSeen> seen;  // of each GPU
  // GPUs that this process sees and that were not chosen: Derate reads only their lists of
  // processes.
  std::vector<OpenGpu> others;
  std::set<std::string> elsewhere;  // UUIDs of `others` where the command works
  bool given_back = false;
  struct {
    std::optional<RecordsFile> file;  // empty: none was named
    Result<void> written;
  } records;
  std::optional<TextFile> report;
  std::unique_ptr<BeatServer> beats;  // null: none can be heard
  bool counts_launches = false;
  std::unique_ptr<LaunchServer> launches;   // null: they are not counted
  std::unique_ptr<CommandWindows> windows;  // null: a daemon has them, or none can be heard
  std::unique_ptr<RunEngine> engine;        // null: the command serves no language model
  std::optional<WorkloadTracker> tracker;
  StepWatch steps;
  std::vector<GpuWork> work;  // on each GPU, as last told

  std::span<const ManagedGpu> gpus() const { return fleet->gpus(); }
};

// Opens the GPUs and governs them by the options' policy, or tunes them by the plan, whose own list
// of GPUs does not count. `link` is null where nothing real is written: simulated GPUs, dry runs.
// Errors: those of the configuration, of opening and of governing; io for what an earlier process
// left and could not be restored.
Result<void> prepare(RunSession& session, const RunOptions& options, const ChosenGpus& chosen,
                     const std::optional<TuningPlan>& tuning, GuardLink* link);
// The command says how far it is on a socket of its own.
void listen_for_beats(RunSession& session);
// Windows of energy of the command, by the readings that this process takes anyway; nothing if a
// daemon listens, which measures them.
void listen_for_windows(RunSession& session);
// Before the command starts. Errors: busy where another user's process works on a GPU that is to be
// governed.
Result<void> check_alone(RunSession& session);
void start_simulated_work(RunSession& session);
// One round. Errors: the records could not be written.
Result<void> tick(RunSession& session, StateFile& state, ReadDepth depth);
// For `derate status`, each second: a state that is older is nobody's.
void publish(const RunSession& session, StateFile& state);
// Gives every GPU back, once. A GPU that fails is tried again until `patience` has passed; failures
// are logged.
void give_back(RunSession& session, Duration patience = {});
// Writes the account to the options' file or standard error. Errors: those of write_account().
Result<void> report(RunSession& session, const RunOptions& options, int exit_code, Duration time,
                    const std::function<bool()>& goes_on);

}  // namespace derate::cli
