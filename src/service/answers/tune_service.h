// Jobs that recur, over the client socket: the edge of tune/trial_registry. The service keeps the
// book in a file, runs on one thread and never blocks. TrialMeters measures what trials cost and
// sets their knobs.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/requests.h"
#include "base/clock.h"
#include "base/log.h"
#include "govern/fleet/tuned_gpus.h"
#include "service/answers/command_router.h"
#include "service/answers/energy_service.h"
#include "service/answers/trial_gpus.h"
#include "service/answers/trial_meters.h"
#include "tune/trial_rate.h"
#include "tune/trial_registry.h"
#include "tune/trial_writer.h"

namespace derate {

// Who may have knobs turned for them.
struct TuneRules {
  bool everyone = false;
  Duration lease = std::chrono::seconds(60);
};

struct TuneServiceOptions {
  std::string file;  // empty: nothing is kept
  TuneRules rules = {};
  // Draws what nobody can guess.
  std::function<std::string()> token = random_token;
  Log log = {};
  // Whether a GPU, by its UUID, has a process of the user; empty: nobody is asked for one.
  std::function<bool(const std::string& gpu, std::uint32_t uid)> works_on = {};
  // The person whose quota of jobs, trials and bytes a user counts against
  // (service/transport/subordinate_ids.h).
  std::function<std::uint32_t(std::uint32_t uid)> person = [](std::uint32_t uid) { return uid; };
  // Who has the GPUs and outlives the service; null: limits and clocks are left alone.
  TunedGpus* gpus = nullptr;
  // Where the file is written; at_once where time is virtual.
  BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread;

  static std::string random_token();
};

class TuneService {
 public:
  using Json = nlohmann::ordered_json;
  // Adds its commands to `clients`. All of them, and what `clients` is served to, live as long.
  TuneService(Clock& clock, CommandRouter& clients, EnergyService& energy,
              TuneServiceOptions options);
  // Writes what waits, as TrialWriter. What a client was answered is on its way to the file with
  // the answer, or with the next step() where a write has just begun.
  ~TuneService();
  TuneService(const TuneService&) = delete;
  TuneService& operator=(const TuneService&) = delete;

  void rules(const TuneRules& rules);
  // The GPUs that are open now, in the order of EnergyService::here().
  void here(std::vector<TuneGpu> gpus);
  // Once a round: gives up whose client is silent, takes up again what ran before a restart.
  void step();
  // Every knob is let go, because GPUs are; trials go on.
  void release_gpus() { meters_.release_gpus(); }

  const TrialRegistry& book() const { return book_; }

 private:
  Result<Json> obey(const JobCreate& request, const Peer& peer);
  Result<Json> obey(const JobShow& request, const Peer& peer);
  Result<Json> obey(const JobList& request, const Peer& peer);
  Result<Json> obey(const JobRemove& request, const Peer& peer);
  Result<Json> obey(const TrialStart& request, const Peer& peer);
  Result<Json> obey(const TrialReport& request, const Peer& peer);
  Result<Json> obey(const TrialEnd& request, const Peer& peer);
  Result<Json> obey(const TrialRenew& request, const Peer& peer);

  Result<JobSpec> work_of(const TrialStart& request) const;
  void make_way(const std::vector<TuneGpu>& gpus, std::uint32_t uid);
  void log_lost(const TrialEntry& gone) const;
  void give_up(std::int64_t id, const std::string& why);
  void look_after();
  void look_for_work();
  TrialView view(const TrialEntry& trial) const;

  Clock& clock_;
  Log log_;
  std::function<std::string()> token_;
  TrialRegistry book_;
  TrialWriter writer_;
  TrialMeters meters_;
  TrialRate rate_;
  std::vector<TuneGpu> gpus_;
};

}  // namespace derate
