// Makes the work status of each GPU for the governor from the processes on it, their heartbeats
// (govern/heartbeat_registry) and their promises (govern/job_classes). Nothing here waits: /proc
// and users are looked up on background threads, and the answers count from a later round on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/background_worker.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process_handle.h"
#include "core/tenant_names.h"
#include "device/telemetry_source.h"
#include "govern/heartbeat_registry.h"
#include "integ/process_facts.h"
#include "service/workloads/beat_socket.h"
#include "service/workloads/launch_reader.h"
#include "service/workloads/launch_socket.h"

namespace derate {

struct GpuUsers {
  std::set<std::uint32_t> uids;
  bool unknown = false;  // there are processes of which it is not known whose they are
  // Another user than this one; empty: there is none, or none is known.
  std::optional<std::uint32_t> other_than(std::uint32_t uid) const;
};

class WorkloadTracker {
 public:
  struct Options {
    // Asked beside this thread, which never waits for them; they may outlive the tracker.
    ProcessReaders readers = {};
    // What a user should know: a DERATE_DELTA that is not understood, a user who is not there.
    Log log = {};
    // The person whose share of the places a user takes and as whom its processes count
    // (service/transport/subordinate_ids.h).
    PersonOf person = [](std::uint32_t uid) { return uid; };
    BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread;
  };
  static constexpr Duration kListEvery = std::chrono::seconds(1);
  // Beats that wait until it is known who sent them.
  static constexpr std::size_t kMostWaiting = 1024;
  // Environments that are read at a time; one that is not read by then is given up, and its thread
  // with it, so many times.
  static constexpr std::size_t kMostWords = 64;
  static constexpr Duration kWordPatience = std::chrono::seconds(5);
  static constexpr int kMostStuck = 8;
  // Limit of processes on GPUs that are held by a descriptor; others are looked up at each list.
  static constexpr std::size_t kMostHeld = 1024;
  // A user who could not be looked up is tried again.
  static constexpr Duration kUsersAgain = std::chrono::minutes(1);

  // A GPU of the governor; the policy's own delta is empty where it promises nothing.
  struct Gpu {
    TelemetrySource* source = nullptr;
    std::uint64_t opening = 0;  // another source has another number, were it at the same address
    std::optional<Fraction> policy_delta = {};
  };

  explicit WorkloadTracker(Clock& clock) : WorkloadTracker(clock, Options{}) {}
  WorkloadTracker(Clock& clock, Options options);

  // Those of the settings. Users are looked up anew; meanwhile a user who was known stays that.
  void rules(const Settings& settings);
  // Waits so long for users to be looked up: for who has no loop yet that could be late.
  void await_users(Duration patience);
  // Processes are listed that often, and never more than once a second.
  void list_every(Duration every) { list_every_ = std::max(kListEvery, every); }
  // The command that governs these GPUs for its time: it stands for jobs that are no processes, and
  // works on all GPUs while no process of its own is seen on any.
  void command(std::int64_t pid);

  void on_message(std::string_view text, const BeatServer::Sender& sender);
  // A page on which a process counts what it launches.
  void on_launches(LaunchPage page, const LaunchServer::Sender& sender);
  // Before a round: what has become known of the work on each GPU, in their order.
  const std::vector<GpuWork>& update(std::span<const Gpu> gpus);
  // After a round: begins to list processes when it is time, so that the list is there at the next.
  void begin_listing(std::span<const Gpu> gpus);

  // Each GPU has told its processes, and it is known whose they are.
  bool has_listed() const;
  // Whether the GPU with that UUID has been seen to have that process, or one below it in its
  // session.
  bool works_below(const std::string& gpu, std::int64_t pid) const;
  // The same of the command.
  bool command_works_on(const std::string& gpu) const {
    return command_ != 0 && works_below(gpu, command_);
  }
  // Whether a process works there that is not the command's: it is no descendant, and it has
  // another user or began before the command. So a process that a daemon starts for a command (a
  // container, a Slurm task) is the command's. Unknown processes do not count.
  bool others_work_on(const std::string& gpu, const ProcessId& command) const;
  // The process with that PID and user, with the start of the process that has the PID now.
  ProcessId begun_by(std::int64_t pid, std::uint32_t uid) const;
  // Whose processes work on the GPU with that UUID, as they were last listed.
  GpuUsers users_of(const std::string& gpu) const;
  // The users of all processes on GPUs, as they were last listed, with the ids that these have.
  std::set<uid_t> users() const;
  bool works_on(const std::string& gpu, std::uint32_t uid) const {
    return users_of(gpu).uids.contains(uid);
  }

  // The names of the rules that no process on a GPU matches, as last listed; none while there are
  // no processes.
  std::vector<std::string> rules_of_nobody() const;

  // What works on each GPU, in their order, as it was last listed.
  std::span<const GpuTenants> tenants() const { return tenants_; }
  // The launches of that process on the GPU of that UUID in the last seconds; null: not known.
  // Counts of another process or user that had the PID are left out.
  const LaunchRate* launches_of(const ProcessId& process, const std::string& gpu) const;
  // The batch job that a listed process is said to be of; empty: nobody said.
  SaidJob job_of(std::int64_t pid) const;
  const BeatCounts& beats() const { return registry_.counts(); }

 private:
  struct Listing {
    std::optional<std::uint64_t> opening;
    bool under_way = false, answered = false;
    Instant listed{};
    std::vector<GpuProcess> processes;
  };
  // A process in the last lists.
  struct Known {
    ProcessFacts facts;  // `asked`: its environment's word, else what was said of it
    enum class Reading { wanted, under_way, over } environment = Reading::wanted;
    std::string own_word;
    HeartbeatRegistry::Announced announced;
    std::string logged;  // a word that is not understood
    SharedHandle handle;
  };
  struct Word {
    ProcessId process;
    std::future<std::string> asked;
    Instant since{};  // when its turn began
  };
  struct Heard {
    BeatMessage message;
    BeatServer::Sender sender;
    std::int64_t pid = 0;                         // of whom it is
    std::optional<LaunchProgress> launches = {};  // that are reported in place of the message
  };
  using Facts = std::map<std::int64_t, ProcessFacts>;
  struct NewlyListed {
    ProcessFacts facts;
    SharedHandle handle;
    std::future<std::string> asked;  // of its environment; invalid: not asked
  };
  using Users = std::map<std::string, Result<std::optional<std::uint32_t>>>;

  void hear(Heard heard);
  void believe(const Heard& heard, const std::optional<ProcessFacts>& process);
  void collect_launches(std::span<const Gpu> gpus);
  void collect(std::span<const Gpu> gpus);
  void forget_unlisted();
  void forget_ended();
  void forget(std::map<std::int64_t, Known>::iterator ended);
  void ask_listed();
  void collect_listed();
  void ask_words();
  void collect_words();
  void settle_word(Known& known);
  void take_announcements();
  void ask_senders();
  void collect_senders();
  void ask_users();
  void collect_users();
  void apply_users();
  std::vector<std::int64_t> listed_pids() const;
  std::vector<GpuTenants> tenants(std::span<const Gpu> gpus) const;
  std::vector<GpuProcessTenant> tenants_of(const Listing& listing) const;
  const ProcessFacts* command_facts() const;
  std::vector<GpuTenants> with_command(std::vector<GpuTenants> gpus) const;

  Clock& clock_;
  Options options_;
  RulesOfSettings rules_;
  std::map<std::string, std::optional<std::uint32_t>> users_;  // by name; empty: none such
  std::future<Users> asked_users_;
  std::optional<Instant> users_again_;
  Duration list_every_ = kListEvery;
  std::int64_t command_ = 0;
  HeartbeatRegistry registry_;
  LaunchTracker launches_;
  std::vector<ProcessLaunches> rates_;  // that are not old
  std::vector<Listing> listings_;
  std::map<std::int64_t, Known> known_;
  std::future<std::vector<NewlyListed>> listed_;    // processes that are new in the lists
  std::shared_ptr<BackgroundWorker> listed_words_;  // where their environments were asked for
  std::deque<Word> words_;                          // as they are being read
  int stuck_ = 0;
  std::deque<Heard> waiting_;
  std::size_t asked_for_ = 0;  // of `waiting_`, from its front, in `senders_`
  std::future<Facts> senders_;
  std::shared_ptr<KnownSenders> speakers_;  // for `facts_aside_` alone
  std::optional<Instant> next_listing_;
  std::vector<GpuTenants> tenants_;  // that were listed
  std::vector<GpuWork> work_;
  bool news_ = true;  // since `work_` was made
  // What may hang holds up no other: what stat and status say, environments, names of users.
  BackgroundWorker facts_aside_, users_aside_;
  std::shared_ptr<BackgroundWorker> words_aside_;
};

}  // namespace derate
