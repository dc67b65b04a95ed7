// Jobs that recur, over the client socket: the edge of tune/trial_registry. It measures what trials
// cost with the samples that the daemon takes anyway, keeps the book in a file, and hands GPUs to
// whoever turns their knob. One thread; nothing here waits.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/requests.h"
#include "base/clock.h"
#include "base/log.h"
#include "govern/fleet/tuned_gpus.h"
#include "service/command_router.h"
#include "service/energy_service.h"
#include "tune/trial_rate.h"
#include "tune/trial_registry.h"
#include "tune/trial_writer.h"

namespace derate {

// A GPU that trials can have.
struct TuneGpu {
  GpuId id;
  std::string chip;
  std::optional<Watts> highest_limit;
};

// What a trial's work is counted in.
enum class WorkUnit : std::uint8_t { epochs = 1, steps = 2 };

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
  // Who has the GPUs and outlives the desk; null: limits and clocks are left alone.
  TunedGpus* gpus = nullptr;
  // Where the file is written; at_once where time is virtual.
  BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread;

  static std::string random_token();
};

class TuneService {
 public:
  using Json = nlohmann::ordered_json;
  // A trial whose user has had no process on each of its GPUs for that long is given up, and until
  // there was one no limit or clock is turned for it. Root and the daemon's own user need none.
  static constexpr Duration kWorkPatience = std::chrono::seconds(60);

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
  void let_go();

  const TrialRegistry& book() const { return book_; }

 private:
  // What a running trial is measured by.
  struct Meter {
    Watts max_power{};
    double eta = 0;
    JobSpec work;                                                // what is asked of the knob
    bool works = false;                                          // its user has, on its GPUs
    Instant worked{};                                            // when that was last seen
    bool knob = false;                                           // it is turned
    std::string knob_why;                                        // else why not
    bool open = false;                                           // its window is
    double cost_before = 0, energy_before = 0, time_before = 0;  // a restart
    std::optional<double> epochs_first, cost_first;              // at its first report
    std::optional<double> done;                                  // work, as the knob is told of it
    std::optional<TuneProfileKey> profile;  // what is measured of the knob is kept under
  };

  template <class Request>
  void add(CommandRouter& clients);
  Result<Json> obey(const JobCreate& request, const Peer& peer);
  Result<Json> obey(const JobShow& request, const Peer& peer);
  Result<Json> obey(const JobList& request, const Peer& peer);
  Result<Json> obey(const JobRemove& request, const Peer& peer);
  Result<Json> obey(const TrialStart& request, const Peer& peer);
  Result<Json> obey(const TrialReport& request, const Peer& peer);
  Result<Json> obey(const TrialEnd& request, const Peer& peer);
  Result<Json> obey(const TrialRenew& request, const Peer& peer);

  Result<std::vector<TuneGpu>> choose(const std::string& gpus) const;
  std::optional<std::vector<TuneGpu>> gpus_of(const TrialEntry& trial) const;
  Result<JobSpec> work_of(const TrialStart& request) const;
  Result<Watts> max_power_of(const std::vector<TuneGpu>& gpus, double eta) const;
  void begin_measuring(const TrialEntry& trial, Meter meter);
  Meter meter_of(std::uint32_t uid, const std::vector<TuneGpu>& gpus, const JobSpec& work) const;
  bool works_on(std::uint32_t uid, const std::vector<std::string>& gpus) const;
  void look_for_work();
  void make_way(const std::vector<TuneGpu>& gpus, std::uint32_t uid);
  void log_lost(const TrialEntry& gone) const;
  void give_up(std::int64_t id, const std::string& why);
  void take_knob(const TrialEntry& trial, const std::vector<TuneGpu>& gpus, Meter& meter);
  void take_up(const TrialEntry& trial);
  void end_measuring(std::int64_t id);
  void give_back(std::int64_t id);
  std::string knob_text(std::int64_t id) const;
  void keep_profile(const Meter& meter, const TuningState& state);
  TrialPaid paid(const TrialEntry& trial, std::optional<double> epochs);
  bool may_turn(std::uint32_t uid) const;
  void look_after();
  TrialView view(const TrialEntry& trial) const;
  JobView view(const JobEntry& job) const;

  Clock& clock_;
  EnergyService& energy_;
  TuneServiceOptions options_;
  TuneRules rules_;
  TrialRegistry book_;
  TrialWriter writer_;
  TrialRate rate_;
  std::vector<TuneGpu> gpus_;
  std::map<std::int64_t, Meter> meters_;  // of the running ones
};

}  // namespace derate
