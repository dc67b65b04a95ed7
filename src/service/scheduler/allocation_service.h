// GPUs that a scheduler has given to jobs: who has which, what they have used, and whether they are
// governed as the job's user requested. The scheduler's hooks report begin and end over the control
// socket (`derate slurm prolog`, `derate slurm epilog`). It runs on one thread and never blocks.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/background_worker.h"
#include "base/log.h"
#include "config/settings.h"
#include "service/answers/command_router.h"
#include "service/answers/request_rules.h"
#include "service/scheduler/allocation.h"
#include "service/scheduler/job_meter.h"
#include "store/job_store.h"
#include "store/store_writer.h"

namespace derate {

class AllocationService {
 public:
  using Json = nlohmann::ordered_json;
  struct Options {
    // Of the allocations that have not ended, so that the next daemon goes on with them; empty:
    // they are not kept.
    std::string file = {};
    std::string ended_file = {};  // of those that have (store/job_store.h); empty: the same
    // A folder of notes by epilogs that did not reach the daemon: files named SCHEDULER-JOB.
    std::string notes = {};
    // It may wait for files of processes, so it runs on a thread of its own, unless `where` says
    // otherwise.
    std::function<JobLook(const SchedulerJob&)> look = [](const SchedulerJob&) {
      return JobLook();
    };
    BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread;
    Log log = {};
  };
  // Ended allocations are listed until so many others have ended.
  static constexpr std::size_t kMostEnded = 256;
  static constexpr std::size_t kMostAllocations = 1024;
  static constexpr Duration kLookEvery = std::chrono::milliseconds(500);
  // Without an epilog, an allocation ends when neither its job nor its scheduler has run here for
  // so long.
  static constexpr Duration kGonePatience = std::chrono::seconds(1);
  static constexpr Duration kAgainAfter = std::chrono::seconds(1);  // a passing failure
  // A GPU that was here before this daemon, and has given no reading of its counter for so long, is
  // measured without.
  static constexpr Duration kCounterPatience = std::chrono::seconds(10);
  // So much of an allocation's energy is lost with a killed daemon where a GPU has no counter.
  static constexpr Duration kSaveEvery = std::chrono::seconds(10);

  // Adds its commands to `operators`, and what everybody may read to `clients`. All of them outlive
  // it.
  AllocationService(Clock& clock, CommandRouter& operators, CommandRouter& clients,
                    EnergyService& energy, Fleet& fleet, Options options);
  AllocationService(const AllocationService&) = delete;
  AllocationService& operator=(const AllocationService&) = delete;

  void rules(RequestRules rules, const SchedulerSettings& settings);
  // Once a round: governs what is allowed now, gives back the rest, ends what has ended.
  void step();
  // Whether a job has the GPU.
  bool has(const std::string& uuid) const;

 private:
  using Key = std::pair<std::string, std::string>;  // scheduler, job
  struct Rules {
    RequestRules requests;
    std::set<std::string> accounts, partitions;  // empty: all
  };
  struct Wish {
    Given given = Given::nothing;
    std::string why = {};
  };
  struct Looks {
    std::vector<Key> jobs;
    std::future<std::vector<JobLook>> answer;
    std::optional<Instant> posted;
  };

  Result<Json> obey(const AllocationBegin& request, const Peer& peer);
  Result<Json> obey(const AllocationEnd& request, const Peer& peer);
  Result<Json> obey(const AllocationList& request, const Peer& peer) const;
  void choose_wanted(Allocation& allocation) const;
  std::vector<const Allocation*> others_with(const std::string& uuid,
                                             const Allocation& allocation) const;
  Wish wish_of(const Allocation& allocation, const AllocatedGpu& gpu) const;
  std::optional<Error> against_policy(const Allocation& allocation, const AllocatedGpu& gpu) const;
  std::optional<Error> against_observing(const Allocation& allocation, const AllocatedGpu& gpu,
                                         bool by_user) const;
  Result<void> check_job(const SchedulerJob& job) const;
  void step(Allocation& allocation, AllocatedGpu& gpu);
  void step_gpus();
  void give(Allocation& allocation, AllocatedGpu& gpu, Given given, std::size_t at);
  void give_back(Allocation& allocation, AllocatedGpu& gpu, const std::string& why);
  void share_out();
  void take_readings();
  void look();
  void take(Allocation& allocation, const JobLook& look);
  void take(const GpuRecord& record);
  void end(const Key& key, const std::string& by);
  void end_before(const AllocationBegin& request);
  void settle();
  void keep(const AllocationView& ended);
  void load();
  void save();

  Clock& clock_;
  Fleet& fleet_;
  Options options_;
  Rules rules_;
  JobMeter meter_;
  std::optional<Instant> metered_;  // since when the meter runs: since the first job
  std::map<Key, Allocation> running_;
  std::vector<Key> noted_;            // that have ended while no daemon ran
  std::vector<Allocation> ending_;    // their energy is not settled yet
  std::deque<AllocationView> ended_;  // the newest first
  JobMeter::Holder next_holder_ = JobMeter::kNoJob + 1;
  std::optional<Instant> saved_;
  BackgroundWorker looker_;
  Looks looks_;
  std::unique_ptr<StoreWriter<JobStore>> store_;  // null: nothing is kept
};

}  // namespace derate
