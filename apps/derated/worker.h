// The part of derated that has the GPUs: opens them, restores what an earlier life left, observes
// or governs each, opens anew one that was lost, and takes commands. One thread, one round at a
// time; nothing here waits for a GPU longer than the loop's patience.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/common/gpus.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "govern/fleet/policy_choice.h"
#include "govern/fleet/tuned_gpus.h"
#include "govern/governor.h"
#include "service/attribution_service.h"
#include "service/beat_socket.h"
#include "service/command_router.h"
#include "service/control_socket.h"
#include "service/energy_service.h"
#include "service/state_file.h"
#include "service/tune_service.h"
#include "service/workload_tracker.h"
#include "store/audit.h"

namespace derate::cli {

// How late the loop's rounds began, over the last ones.
class Lateness {
 public:
  static constexpr std::size_t kKept = 1000;
  void add(Duration late);
  std::uint64_t rounds() const { return rounds_; }
  // Empty before the first round.
  std::optional<Duration> quantile(double share) const;

 private:
  std::vector<Duration> kept_;
  std::uint64_t rounds_ = 0;
};

struct WorkerOptions {
  std::string who = "derated";  // in the journal, the audit log and the state file
  Journal journal;
  MachineLife life;
  AuditLog audit;
  std::string state_file;
  ModelFiles models = {};
  std::string tune_file = {};  // of jobs that recur; empty: they are not kept
  OpenFleet open;
  // One governor a GPU: see take_lease().
  std::function<Result<UniqueFd>(const std::string& uuid)> lease;
  std::function<void(const std::string& uuid)> release = [](const std::string&) {};
  std::function<void(const std::string& text)> tell = [](const std::string&) {};
  std::function<void(const Record& record)> note = [](const Record&) {};  // each, as it is made
  WorkDesk::Options desk = {};                // its `tell` is the one above
  AttributionDesk::Options attribution = {};  // without a namer nothing is attributed
};

class Worker : public TunedGpus {
 public:
  static constexpr Duration kExpiredBeforeReopen = std::chrono::seconds(5);
  static constexpr Duration kReopenEvery = std::chrono::seconds(10);
  static constexpr Duration kRescanEvery = std::chrono::seconds(30);
  static constexpr Duration kLeaseEvery = std::chrono::seconds(5);
  static constexpr Duration kRestoreEvery = std::chrono::seconds(5);

  // `clock` outlives the worker.
  Worker(WorkerOptions options, Settings settings, Clock& clock);

  // One round. Errors: the GPUs could not be opened at the start.
  Result<void> step();
  // When the next round is due: within a second, whatever the settings are.
  Instant next_due() const;
  // The GPUs are open.
  bool running() const { return governor_ != nullptr; }

  // A new configuration: GPUs that it does not change go on as they are. A GPU that a command gave
  // a policy keeps it, in the new envelope. What each setting changes is its scope
  // (setting_info.h).
  void reload(const Settings& settings);
  // A request of the control socket, answered with a line of JSON (docs/control.md).
  std::string handle(std::string_view request, const Peer& peer);
  // What came to the beat socket (docs/heartbeats.md).
  void hear(std::string_view text, const BeatServer::Sender& sender) { desk_.hear(text, sender); }
  // What programs ask over the client socket (docs/energy.md).
  ClientDesk& clients() { return clients_; }
  // GPUs that are tuned for a job go before what the configuration or a command wants there.
  Result<void> take_for_tuning(const std::string& name, const TuningPlan& plan) override;
  Result<void> give_back_tuned(const std::string& name) override;
  Result<void> tell_work(const std::string& name, const Beat& done) override;
  const TunedRun* tuned(const std::string& name) const override;
  // Gives every GPU back. Errors: those of restoring; the journal has what is left.
  Result<void> stop();

 private:
  // What a GPU is to be governed by.
  struct Assignment {
    ChosenPolicy policy;
    bool dry_run = false;
    bool operator==(const Assignment&) const = default;
  };
  struct Tuning {
    std::vector<std::string> gpus;  // UUIDs, in the run's order
    std::shared_ptr<TunedRun> run;
  };
  struct Post {
    OpenGpu gpu;
    std::uint64_t opening = 0;  // which this is, of all
    std::optional<Assignment> wanted;
    bool tuned = false;  // its seat carries out a tuning's order, not what is wanted
    std::string policy;  // by which it is governed now; empty: observed
    std::string trouble;
    UniqueFd lease;
    std::optional<Instant> lease_again;
    std::optional<Keeping> handed_on;  // of a predecessor: what the GPU must be restored to
    std::optional<Instant> restore_again;
    std::string left_alone;       // why a journal of another process is left; empty: none is
    bool left_by_nobody = false;  // no governor is known that would restore it
    std::optional<Instant> left_again;
    std::optional<Instant> expired_since, reopen_at;
    OpeningPoll reopening;
  };
  using Json = nlohmann::ordered_json;

  void begin_opening();
  void take_open(OpenGpus opened);
  void add_post(OpenGpu gpu);
  void restore_leftovers(std::span<Post> posts);
  bool some_missing() const;
  void look_for_missing();
  void restore_leftover(Post& post, const JournalEntry& entry);
  void leave_alone(Post& post, const Error& why);
  void look_for_leftover(Post& post);
  Result<void> leftovers_of_nobody();
  std::vector<GpuId> ids() const;
  void tell_unknown_gpus() const;
  std::optional<Assignment> by_configuration(const GpuId& id) const;
  GovernedGpu observer(Post& post) const;
  Result<GovernedGpu> governed(Post& post);
  Result<GovernedGpu> wanted_seat(const Post& post);
  GovernedGpu seat(Post& post);
  Keeping keeping_for(Post& post) const;
  Result<void> assign(std::size_t at, std::optional<Assignment> wanted);
  Result<void> vacate(std::size_t at, const char* why);
  Result<void> reseat(std::size_t at, const char* why);
  static const Assignment* governing(const Post& post);
  std::string tuning_of(const Post& post) const;
  Result<std::vector<std::size_t>> free_posts(const TuningPlan& plan) const;
  Result<void> seat_tuned(const std::string& name, std::span<const std::size_t> places);
  void note_tuned(const Post& post, const Record& record);
  void restore_handed_on(Post& post);
  void let_go(Post& post);
  void set_up_desk();
  void attribute();
  std::vector<WorkDesk::Gpu> desk_gpus() const;
  void tell_work();
  void take_records(std::span<const Record> records);
  void note_freshness(Post& post, const Record& record);
  void tend(std::size_t at);
  void reopen(std::size_t at);
  void audit(AuditEntry entry);
  Json state_of(const Record& record) const;
  void tell_gpus();
  void publish();

  void take_rules();
  void take_governing(const std::set<Scope>& changed);
  Result<Json> obey(const Json& request, const Peer& peer);
  Result<Json> set_policy(const Json& request);
  Result<std::string> govern_by_command(std::size_t at, const Assignment& wanted);
  Result<Json> release_gpus(const Json& request);
  Result<std::string> release_by_command(std::size_t at);
  Result<Json> pause();
  Result<Json> resume();
  Result<std::vector<int>> chosen(const Json& request) const;

  WorkerOptions options_;
  Settings settings_;
  Clock& clock_;
  StateFile state_;
  ModelShelf models_;  // outlives the governor's policies
  OpeningPoll opening_;
  bool some_failed_ = false;     // to open, when last tried
  std::set<std::string> known_;  // UUIDs of the GPUs that were ever open
  OpeningPoll rescan_;
  std::optional<Instant> rescan_at_;
  std::uint64_t openings_ = 0;
  std::vector<Post> posts_;
  std::unique_ptr<Governor> governor_;       // its seats are `posts_`, in order
  std::vector<std::optional<Record>> last_;  // of each GPU
  Lateness lateness_;
  WorkDesk desk_;
  ClientDesk clients_;
  EnergyDesk energy_;
  TuneDesk tune_;
  AttributionDesk attribution_;
  std::vector<std::string> promise_from_;  // of each GPU
  // By UUID, and before the configuration; empty: released. Outlives a pause and a lost GPU.
  std::map<std::string, std::optional<Assignment>> commanded_;
  std::map<std::string, Tuning> tunings_;        // by name; outlive a pause and a lost GPU, too
  std::map<std::string, UniqueFd> kept_leases_;  // of GPUs that are paused
  bool paused_ = false, first_opening_ = true, audit_failed_ = false;
};

}  // namespace derate::cli
