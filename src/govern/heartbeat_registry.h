// Beats of applications, by GPU: a beat counts where its sender may speak for the process, expires
// when the sender falls silent, and becomes the work status that the governor uses. No I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/gpu_id.h"
#include "core/gpu_process.h"
#include "core/work_status.h"
#include "govern/job_classes.h"
#include "signal/heartbeats.h"
#include "signal/launches.h"
#include "signal/progress_count.h"

namespace derate {

// A GPU, who works there, and what its policy allows itself (empty: it promises nothing).
struct GpuTenants {
  GpuId id;
  std::vector<GpuProcessTenant> tenants;
  std::optional<Fraction> policy_delta;
  // The driver also lists the clients of an MPS server (Volta and later).
  bool lists_mps_clients = false;
};

// The work of one GPU for the governor, and who made its promise; empty: the policy.
struct GpuWork {
  WorkStatus status;
  std::string promise_from;
};

struct BeatCounts {
  std::uint64_t heard = 0, malformed = 0, too_many = 0;
  std::size_t unplaced = 0;  // sources at present that work on no GPU that they may speak for
};

class HeartbeatRegistry {
 public:
  static constexpr std::size_t kMostSources = 256, kMostOfAUser = 64;
  static constexpr double kPerSecond = 200, kAtOnce = 400;  // messages of one user
  // A count stands for a shared GPU when its process leads by this share of the SMs' time.
  static constexpr Fraction kLead{0.10};

  // Maps a user to the person whose quota of messages and places it uses
  // (service/transport/subordinate_ids.h). If places are few, people with a process on a GPU at the
  // last status() come first (core/fair_place.h).
  using PersonOf = std::function<std::uint32_t(std::uint32_t uid)>;
  void people(PersonOf person) { person_ = std::move(person); }

  // Who sends it, as the kernel says.
  struct Sender {
    std::uint32_t uid = 0;
    std::int64_t pid = 0;
  };
  // Whether the user's person may send one more message now: kPerSecond, with bursts of kAtOnce.
  bool admit(std::uint32_t uid, Instant now);
  void count_malformed() { ++counts_.malformed; }
  void count_too_many() { ++counts_.too_many; }
  // `process`: of `message.pid`, else of the sender; empty when it is gone already.
  void add(const BeatMessage& message, const Sender& sender,
           const std::optional<ProcessFacts>& process, Instant time);
  // How far a process is by what it launches, where that counts its work: without a state it does
  // so no more. The process's own beats come before it.
  void add_launches(const LaunchProgress& progress, const std::optional<ProcessFacts>& process);
  // The process has ended: removes its reports and announcements.
  void forget(const ProcessId& ended);
  // The work of each GPU, in their order. Drops sources that have expired.
  std::vector<GpuWork> status(std::span<const GpuTenants> gpus, const PromiseRules& rules,
                              Instant now);
  // What was said of the environment of the process, or of one above or below it in its session,
  // the nearest; by its own user, or by root. Empty texts: nothing. Kept while others do not push
  // it out: processes announce themselves before they come to a GPU.
  struct Announced {
    std::string asked, job;
    bool operator==(const Announced&) const = default;
  };
  Announced announced(const ProcessFacts& process) const;
  const BeatCounts& counts() const { return counts_; }
  std::size_t sources() const { return sources_.size(); }

 private:
  struct SourceKey {
    std::uint32_t uid = 0;
    std::int64_t pid = 0;
    std::string gpu;
    ProgressSource kind = ProgressSource::heartbeats;
    bool operator==(const SourceKey&) const = default;
  };
  // A process that sends beats, or launches; one that names GPUs is one source for each.
  struct HeartbeatSource : SourceKey {
    std::optional<ProcessFacts> process;
    std::uint64_t number = 0;  // of the source, among all so far
    ProgressCount count;
    std::string phase;                 // until it names another
    std::optional<Fraction> max_loss;  // until it asks for another
    Instant heard{};
    std::vector<ProcessId> of;  // the tenants that its last fresh beat was placed on
    bool of_launches() const { return kind == ProgressSource::launches; }
    void add(Progress progress, std::uint64_t& runs) {
      progress.process = number;
      count.add(std::move(progress), runs);
    }
  };
  // On one GPU, a source and the tenants that it speaks of; none: root speaks of the GPU itself.
  struct GpuHeartbeat {
    const HeartbeatSource* source = nullptr;
    std::vector<std::size_t> tenants;
    int distance = 0;
    bool fresh = true;   // its last message has not expired
    bool counts = true;  // its last count of work has not expired
  };
  struct Announcement {
    std::uint32_t uid = 0;  // of who said it
    ProcessFacts process;
    Announced content;
    Instant heard{};
  };
  struct Allowance {
    std::uint32_t person = 0;
    double left = 0;
    Instant since{};
  };

  template <class T>
  bool make_room(std::vector<T>& sources, std::uint32_t uid, Instant now);
  // Null: no place is left.
  HeartbeatSource* source_for(SourceKey key, const std::optional<ProcessFacts>& process,
                              Instant time);
  void announce(const BeatMessage& message, const Sender& sender, const ProcessFacts& process,
                Instant time);
  static std::optional<std::size_t> steps_between(const Announcement& from,
                                                  const ProcessFacts& process);
  static bool place(HeartbeatSource& source, const GpuHeartbeat& heartbeat,
                    std::span<const GpuTenants> gpus,
                    std::vector<std::vector<GpuHeartbeat>>& heartbeats);
  static int distance(const HeartbeatSource& source, const GpuProcessTenant& tenant);
  static const GpuHeartbeat* leading(const GpuTenants& gpu,
                                     std::span<const GpuHeartbeat> heartbeats);
  static void drop_launches_of_speakers(std::vector<GpuHeartbeat>& heartbeats);
  static GpuWork work_of(const GpuTenants& gpu, std::span<const GpuHeartbeat> heartbeats,
                         const PromiseRules& rules);

  PersonOf person_ = [](std::uint32_t uid) { return uid; };
  std::set<std::uint32_t> working_;  // people with a process on a GPU
  std::vector<HeartbeatSource> sources_;
  std::vector<Announcement> announcements_;
  std::vector<Allowance> allowances_;
  BeatCounts counts_;
  std::uint64_t runs_ = 0;     // of all counts
  std::uint64_t numbers_ = 0;  // of sources
};

}  // namespace derate
