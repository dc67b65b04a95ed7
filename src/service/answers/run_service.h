// Governs an ordinary user's GPUs while a command of that user runs, over the client socket:
// `derate run` without the rights to set clocks. It runs on one thread and never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/requests.h"
#include "base/log.h"
#include "govern/fleet/fleet.h"
#include "govern/ledger.h"
#include "service/answers/command_router.h"
#include "service/answers/request_rules.h"
#include "service/workloads/workload_tracker.h"

namespace derate {

// The sentence: the command of a run works on that GPU, which does not belong to the run.
std::string works_elsewhere(const GpuId& id);
// The sentence: no process of the command was seen on a governed GPU. It names whose figures the
// account has.
std::string command_not_seen(int index, bool others_seen);

class RunService {
 public:
  using Json = nlohmann::ordered_json;
  // A GPU whose run's user has had no process there for that long is given back.
  static constexpr Duration kAwayPatience = std::chrono::seconds(60);
  // Who begins and ends runs in a row gets no more writes than one in that time.
  static constexpr Duration kBetweenRuns = std::chrono::seconds(5);
  // A process of which it is not known whose it is does not end a run before that.
  static constexpr Duration kUnknownPatience = std::chrono::seconds(5);
  // What is known of the processes on GPUs, by their UUIDs.
  struct Works {
    std::function<GpuUsers(const std::string& gpu)> users;
    // It has that process, or one below it.
    std::function<bool(const std::string& gpu, std::int64_t pid)> below;
    // The GPU has a process that does not belong to that command (WorkloadTracker::others_work_on).
    std::function<bool(const std::string& gpu, const ProcessId& command)> others;
    // The process that begins a run, with its start time.
    std::function<ProcessId(std::int64_t pid, std::uint32_t uid)> begun_by;
  };

  // Adds its commands to `clients`. All of them outlive it.
  RunService(Clock& clock, CommandRouter& clients, Fleet& fleet, Works works, Log log);
  RunService(const RunService&) = delete;
  RunService& operator=(const RunService&) = delete;

  void rules(RequestRules rules) { rules_ = std::move(rules); }
  // Once a round: governs GPUs where the work of their run has begun, and gives back those where
  // something stands against it now.
  void step();
  // Ends what governs now, because the GPUs are closed.
  void closed();

 private:
  // A GPU of a run. Once it has ended it is not governed for that run again: what others did on it
  // meanwhile is not the run's.
  struct Place {
    GpuId id;
    enum class State : std::uint8_t { waiting, governed, ended } state = State::waiting;
    std::string why;  // it is not governed
    std::optional<Instant> unknown_since;
    Instant worked{};  // when its user was last seen there
    std::optional<Ledger> ledger;
    std::optional<double> promise;  // performance
    bool command_seen = false;      // the run's process or a descendant was seen
    bool others_seen = false;       // a process outside the command was seen
  };
  struct Run {
    std::string name;  // no two have the same
    std::uint32_t uid = 0;
    std::int64_t pid = 0;
    ProcessId begun = {};       // the process of `pid`, with its start time
    SharedHandle process = {};  // the run ends with it; until then its PID is not reused
    std::vector<gid_t> groups = {};
    PolicyAssignment wanted;
    bool named = false;  // the GPUs; else those are meant where its own processes work
    std::vector<Place> places;
    std::set<std::string> elsewhere;  // UUIDs of other GPUs where its command works
    std::vector<std::string> notes;   // sentences for the run's account
  };

  Result<Json> obey(const RunBegin& request, const Peer& peer);
  Result<Json> obey(const RunShow& request, const Peer& peer);
  Result<Json> obey(const RunEnd& request, const Peer& peer);
  Result<Json> obey(const RunRelease& request, const Peer& peer);
  Result<Run*> run_of(const Peer& peer);
  Result<PolicyAssignment> policy_for(const RunBegin& request, std::uint32_t uid) const;
  std::optional<Error> objection(const Run& run, const Place& place) const;
  void step(Run& run, Place& place);
  void look_elsewhere(Run& run);
  std::string waits_for(const Run& run, const Place& place) const;
  std::optional<Duration> unknown_for(Place& place) const;
  void govern(Run& run, Place& place);
  void end(Run& run, Place& place, const std::string& why);
  void ask_once();
  void forget(std::uint64_t connection);
  void take(const GpuRecord& record);

  Clock& clock_;
  Fleet& fleet_;
  Works works_;
  Log log_;
  RequestRules rules_;
  std::map<std::uint64_t, Run> runs_;          // by connection
  std::map<std::string, Instant> given_back_;  // by UUID: when the last run there ended
  bool asked_ = false;                         // readings of the GPUs were started in this step
};

}  // namespace derate
