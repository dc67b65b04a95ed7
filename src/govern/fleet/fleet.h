// The GPUs of a program that governs: opens them, restores leftovers of earlier processes, takes
// leases, observes or governs each as it is assigned, and reopens a lost one. derated and `derate
// run` govern with it. It runs on one thread and waits for no GPU longer than the loop's patience.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "config/settings.h"
#include "govern/fleet/assignments.h"
#include "govern/fleet/audit_trail.h"
#include "govern/fleet/envelope_bounds.h"
#include "govern/fleet/fleet_opener.h"
#include "govern/fleet/lease_keeper.h"
#include "govern/fleet/leftover_restorer.h"
#include "govern/fleet/managed_gpu.h"
#include "govern/fleet/record_sink.h"
#include "govern/fleet/tuned_gpus.h"
#include "govern/governor.h"
#include "govern/heartbeat_registry.h"
#include "govern/model_cache_provider.h"

namespace derate {

struct FleetOptions {
  std::string owner = "derated";  // in the journal and the audit log
  // Where what is found on a GPU is written down before the first write. Empty: nowhere, which is
  // for simulated GPUs and dry runs.
  std::optional<Journal> journal;
  BootIdentity life;
  std::string run_folder;  // of the leases
  std::optional<AuditLog> audit;
  AuditTrail::OnEntry on_audit = {};  // each entry, also where there is no file of them
  OpenFleet open;                     // empty: open() is given the GPUs, and none is opened again
  LeaseHooks leases;                  // one governor a GPU
  Log log = {};
  ModelCacheProvider* models = nullptr;  // outlives the fleet; null: nothing is kept of work
  // Reports that the loop lives: called before each GPU whose driver may block.
  std::function<void()> alive = [] {};
  // Ticks every GPU in every round, whatever its policy's period: for a loop that has that period.
  bool every_round = false;
};

class Fleet : public TunedGpus {
 public:
  static constexpr Duration kExpiredBeforeReopen = std::chrono::seconds(5);
  static constexpr Duration kReopenEvery = std::chrono::seconds(10);
  // A tool that changes settings again and again reopens a GPU no more often.
  static constexpr Duration kModesHeld = std::chrono::minutes(1);
  static constexpr Duration kLeaseEvery = std::chrono::seconds(5);
  static constexpr Duration kIdleRound = std::chrono::milliseconds(200);  // without GPUs
  static constexpr Duration kRestoreAgain = std::chrono::milliseconds(100);

  // `clock` outlives it.
  Fleet(FleetOptions options, Settings settings, Clock& clock);
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // --- opening and closing

  void begin_opening() { opener_.begin(); }
  bool opening() const { return opener_.under_way(); }
  // Takes in GPUs whose opening has come to its end. Errors: they could not be opened.
  Result<void> poll_opening();
  // Restores what is left on the GPUs, then governs or observes each as it is assigned.
  void open(OpenGpus opened);
  // The same for more of them; those that are here already are left alone.
  void add(OpenGpus opened);
  // The GPUs are open.
  bool is_open() const { return governor_ != nullptr; }
  // Restores every GPU. Failed restores are tried again until `patience` has passed: without a
  // guard, no other process restores them. Errors: those of restoring; the journal keeps the
  // settings that are not restored.
  Result<void> restore(const char* why, Duration patience = {});
  // The same at the end of the program, and once more what was left before. Errors: as above.
  Result<void> finish(Duration patience = {});
  // After restore(): closes every handle, so that MIG changes, resets and profilers can go on; the
  // leases stay, so that no other governor comes in between.
  void close();

  // --- the round

  // One more place where records go; the audit log and jobs that are tuned have theirs.
  void add_sink(RecordSink sink) { sinks_.push_back(std::move(sink)); }
  // Ticks the GPUs that are due (`ReadDepth::all`: all of them): their records go to the sinks. How
  // many there were.
  std::size_t tick(ReadDepth depth = ReadDepth::due);
  // After a round: jobs that are tuned take their next step; leases that were taken and GPUs that
  // were lost or were not there are tried again; assignments that have ended are left.
  void maintain();
  Instant next_due() const;

  // --- the GPUs

  std::span<const ManagedGpu> gpus() const { return gpus_; }
  std::vector<GpuId> ids() const;
  // Counts up when GPUs come or go.
  std::uint64_t changes() const { return changes_; }
  // Null: there is none of that UUID.
  const ManagedGpu* find(const std::string& uuid) const;
  // The number of the one GPU that `choice` names. Errors: busy while none is open;
  // invalid_argument where it names more; those of select_gpus().
  Result<std::size_t> find_one(const std::string& choice) const;
  // What is known of the work on each GPU from now on, in their order.
  void set_work(std::span<const GpuWork> work);
  // A round soon reads the energy counter of that GPU, where it is here.
  void read_counter_next(const std::string& uuid, CounterNeed need = CounterNeed::now);

  // --- who governs what

  const Assignments& assignments() const { return assignments_; }
  // The bounds of GPUs' knobs; they hold for every policy.
  EnvelopeBounds& bounds() { return bounds_; }
  const Settings& settings() const { return settings_; }
  // A sentence, if the configuration says `govern` and no GPU is governed by it, by an operator or
  // by a run; otherwise empty.
  std::string governs_nothing() const;
  // What would come of other promises to the work on the GPU at `at` (policy/policy.h); none while
  // it is only observed.
  std::vector<Forecast> forecast(std::size_t at, std::span<const double> deltas) const;
  // Sentences: the GPUs that could not be governed with these settings, with reasons, and the
  // clocks that would be rounded. Failures that show only later are missing, such as a lease that
  // another governor holds.
  std::vector<std::string> warnings_under(const Settings& settings) const;
  // Starts a reading of each GPU before requests for several GPUs, so that the waits for drivers
  // that hang overlap.
  void start_readings();
  // A new configuration: GPUs that it does not change go on as they are.
  void reload(const Settings& settings);
  // Takes a request for the GPU at `at` to be governed by a policy, or to be only observed, and
  // returns a sentence that says what was done. The request outlives a pause, a reload and a lost
  // GPU. If it has an end, the assignment before it comes back then. If it fails, the GPU is
  // governed as before. Errors: busy where decide() refuses it, invalid_argument.
  Result<std::string> assign(std::size_t at, Assignment request);
  // What is assigned unconfirmed and has not ended; null: nothing is.
  const Assignment* unconfirmed(std::size_t at) const;
  // It becomes a command's, and goes on. Errors: not_found: nothing is assigned so.
  Result<std::string> confirm(std::size_t at, std::string who);
  // It ends now. Errors: the same; why what comes back does not govern.
  Result<std::string> revert(std::size_t at);
  // A request of that origin, in the name of `who`, ends; nothing where it has ended. Errors: those
  // of restoring: it is tried again.
  Result<void> end_request(const std::string& uuid, RequestOrigin origin, const std::string& who,
                           const char* why);
  // Ends what commands have assigned or released, where the configuration governs the GPU: it is
  // the configuration's again. Errors: not_found where the configuration does not govern it, when
  // nothing was done; why it is not governed.
  Result<std::string> follow_configuration(std::size_t at);
  // Observed by command; what it was tuned for ends. Errors: those of restoring: the GPU is
  // observed all the same, and its restoring is tried again.
  Result<std::string> release(std::size_t at, std::string who);

  // TunedGpus: a tuning wins over the configuration and commands.
  Result<void> take_for_tuning(const std::string& name, const TuningPlan& plan) override;
  Result<void> give_back_tuned(const std::string& name) override;
  Result<void> report_work(const std::string& name, const Progress& done) override;
  std::optional<TuningState> tuning(const std::string& name) const override;
  // The run itself; null when there is none of that name, any more.
  const TunedRun* tuned(const std::string& name) const;

 private:
  static Error nothing_tried(const ManagedGpu& gpu);
  void leave_ended(std::size_t at);
  void leave_lost_leases();
  void ask_when_many_end();
  GovernorOptions options_of_governor() const;
  void configure();
  void log_unknown_gpus() const;
  void log_clocks_between_steps(std::size_t first) const;
  Result<GovernedGpu> govern_assigned(const ManagedGpu& gpu) const;
  Result<GovernedGpu> governed(ManagedGpu& gpu);
  // Why a GPU is not governed as assigned: to the log, or to the caller of assign() alone.
  enum class Trouble : std::uint8_t { logged, returned };
  GovernedGpu take_control(ManagedGpu& gpu, Trouble trouble = Trouble::logged);
  JournalHandle journal_handle_for(const ManagedGpu& gpu) const;
  Result<void> restore_and_observe(std::size_t at, const char* why);
  Result<void> reassign(std::size_t at, const char* why, Trouble trouble = Trouble::logged);
  void release_lease(const ManagedGpu& gpu);
  Result<std::vector<std::size_t>> free_gpus(const TuningPlan& plan) const;
  Result<void> begin_tuning(const std::string& name, const TuningPlan& plan,
                            std::span<const std::size_t> places);
  void take(const Record& record);
  static void note_modes(ManagedGpu& gpu, const Record& record);
  void maintain(std::size_t at);
  void reopen(std::size_t at);
  // What is put anew although its assignment has not changed: its settings have.
  struct Renewed {
    bool governed = false, observed = false;
  };
  std::optional<ChosenPolicy> policy_under(const Settings& settings, const std::string& uuid,
                                           bool named) const;
  void take_assignments(const Renewed& renewed);
  void begin_anew();

  FleetOptions options_;
  Settings settings_;
  std::string unknown_gpus_;  // that the configuration names, as a sentence; empty: none
  Clock& clock_;
  AuditTrail audit_;
  LeaseKeeper leases_;
  LeftoverRestorer leftovers_;
  Assignments assignments_;
  EnvelopeBounds bounds_;
  FleetOpener opener_;
  std::vector<ManagedGpu> gpus_;
  std::unique_ptr<Governor> governor_;  // has `gpus_` in the same order
  std::set<std::string> known_;         // UUIDs of the GPUs that were ever open
  std::uint64_t changes_ = 0;
  std::vector<RecordSink> sinks_;
};

}  // namespace derate
