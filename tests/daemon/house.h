// A house of simulated GPUs on virtual time, with a worker over it: days of the daemon's life in
// seconds. The GPUs outlive every opening, as silicon does.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/daemon/worker.h"
#include "base/check.h"
#include "device/sim/sim_device.h"
#include "govern/lease.h"

namespace derate::cli {

// What is wrong with a GPU, whoever opens it.
struct GpuTrouble {
  SimFaults faults;
  int open = 0;                                           // how many have it open
  std::optional<std::vector<GpuProcess>> processes = {};  // empty: as the simulation has them
};

class HouseDevice final : public TelemetrySource, public ClockControl {
 public:
  HouseDevice(SimGpu& gpu, Clock& clock, int index, GpuTrouble& trouble)
      : inner_(gpu, clock, index), trouble_(trouble) {
    ++trouble_.open;
  }
  ~HouseDevice() override { --trouble_.open; }

  const Capability& capability() const override { return inner_.capability(); }
  Result<Sample> read(const ReadPlan& plan) override { return now().read(plan); }
  Result<std::vector<GpuProcess>> processes() override {
    SimDevice& device = now();
    if (trouble_.processes && !trouble_.faults.gpu_lost) return *trouble_.processes;
    return device.processes();
  }
  Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) override {
    return now().lock_sm_clock(lowest, highest);
  }
  Result<void> reset_sm_clock() override { return now().reset_sm_clock(); }
  Result<void> set_power_limit(Watts limit) override { return now().set_power_limit(limit); }
  Result<GpuSettings> settings() override { return now().settings(); }

 private:
  // A handle to a GPU that was lost stays dead, as a driver's does: it has to be opened anew.
  SimDevice& now() {
    dead_ = dead_ || trouble_.faults.gpu_lost;
    inner_.faults = trouble_.faults;
    inner_.faults.gpu_lost = dead_;
    return inner_;
  }
  SimDevice inner_;
  bool dead_ = false;
  GpuTrouble& trouble_;
};

class House {
 public:
  explicit House(int gpus, const char* chip = "V100-SXM2") {
    std::string made = (std::filesystem::temp_directory_path() / "derate-XXXXXX").string();
    CHECK(::mkdtemp(made.data()) != nullptr);
    folder = made;
    ::setenv("DERATE_RUN_DIR", (folder + "/run").c_str(), 1);
    const SimChip& of = **find_sim_chip(chip);
    for (int i = 0; i < gpus; ++i) {
      sims.push_back(
          std::make_unique<SimGpu>(of, SimOptions{.seed = static_cast<std::uint64_t>(i + 1)}));
      troubles.push_back(std::make_unique<GpuTrouble>());
    }
  }
  House(const House&) = delete;
  House& operator=(const House&) = delete;
  ~House() {
    worker.reset();
    std::filesystem::remove_all(folder);
  }

  void start(const Settings& settings = {}) {
    worker.reset();
    WorkerOptions options{.journal = journal(), .life = life, .audit = AuditLog(audit_file())};
    options.state_file = "state.json";
    options.models = models();
    options.tune_file = folder + "/state/tune.db";
    options.open = [this](const std::string& choice) -> OpeningPoll {
      return [this, choice] { return std::optional<Result<OpenGpus>>(open(choice)); };
    };
    options.lease = [this](const std::string& uuid) {
      return take_lease(folder + "/run", uuid, "the worker");
    };
    options.attribution = attribution;
    options.tell = [this](const std::string& text) { told.push_back(text); };
    options.note = [this](const Record& record) { note(record); };
    options.process = [this](std::int64_t pid) {
      const auto at = people.find(pid);
      return at != people.end() ? std::optional(at->second) : std::nullopt;
    };
    worker = std::make_unique<Worker>(std::move(options), settings, clock);
    (void)round();
  }
  bool round() {
    const bool good = worker->step().ok();
    clock.sleep_until(worker->next_due());
    return good;
  }
  void run(Duration time) {
    for (const Instant end = clock.now() + time; clock.now() < end;) (void)round();
  }
  void work(int gpu, const char* app) {
    sims[static_cast<std::size_t>(gpu)]->start(
        *find_workload(sims[static_cast<std::size_t>(gpu)]->chip(), app), Duration::zero());
  }
  // A process that works on the GPU.
  ProcessFacts& person(int gpu, std::int64_t pid, std::uint32_t uid) {
    auto& list = trouble(gpu).processes;
    if (!list) list.emplace();
    list->push_back({pid, "/opt/bin/train", {}, {}});
    ProcessFacts& out = people[pid];
    out.pid = out.session = out.group = pid;
    out.uid = uid;
    return out;
  }
  void beat(std::uint32_t uid, pid_t pid, const std::string& text) {
    worker->hear(text, {pid, uid, clock.now()});
  }
  std::string ask(const std::string& request) { return worker->handle(request, {1, 0}); }

  // As a program of that connection; empty: the answer comes later.
  std::string call(std::uint64_t connection, const std::string& request) {
    return worker->clients().handle(request, {7, 1000, connection}).value_or("");
  }

  Journal journal() const { return Journal(folder + "/state/journal"); }
  ModelFiles models() const {
    return {folder + "/state/models.db", folder + "/state/models-simulated.db"};
  }
  std::string audit_file() const { return folder + "/state/audit.jsonl"; }
  std::vector<JournalEntry> left() const { return journal().read(life)->entries; }
  SimGpu& sim(int i) { return *sims[static_cast<std::size_t>(i)]; }
  GpuTrouble& trouble(int i) { return *troubles[static_cast<std::size_t>(i)]; }
  bool was_told(const std::string& part) const {
    for (const std::string& text : told)
      if (text.find(part) != std::string::npos) return true;
    return false;
  }
  static std::string uuid(int i) { return sim_capability(sim_chips().front(), i).id.uuid; }

  MachineLife life{"boot", "load"};
  std::string folder;
  FakeClock clock;
  std::vector<std::unique_ptr<SimGpu>> sims;
  std::vector<std::unique_ptr<GpuTrouble>> troubles;
  std::vector<std::string> told;
  std::function<void(const Record&)> note = [](const Record&) {};
  std::map<std::int64_t, ProcessFacts> people;  // the processes of this machine
  AttributionDesk::Options attribution = {};    // without a namer: none
  std::unique_ptr<Worker> worker;

 private:
  Result<OpenGpus> open(const std::string& choice) {
    OpenGpus out;
    std::vector<GpuId> ids;
    for (std::size_t i = 0; i < sims.size(); ++i)
      ids.push_back(sim_capability(sims[i]->chip(), static_cast<int>(i)).id);
    for (const int at : TRY(select_gpus(ids, choice))) {
      if (trouble(at).faults.gpu_lost) {
        out.notes.push_back("GPU " + std::to_string(at) + " cannot be opened");
        continue;
      }
      auto device = std::make_unique<HouseDevice>(sim(at), clock, at, trouble(at));
      OpenGpu gpu;
      gpu.control = device.get();
      gpu.source = std::move(device);
      out.gpus.push_back(std::move(gpu));
    }
    return out;
  }
};

}  // namespace derate::cli
