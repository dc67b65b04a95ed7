// A house of simulated GPUs on virtual time, with a worker over it: days of the daemon's life in
// seconds. The GPUs outlive every opening, as silicon does.
#pragma once

#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/derated/worker.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "device/sim/sim_device.h"
#include "govern/lease.h"
#include "threaded_device.h"

namespace derate::cli {

// What is wrong with a GPU, whoever opens it.
struct GpuTrouble {
  SimFaults faults;
  int answers_later = 0;       // rounds that a call takes that is polled for; 0: answered at once
  bool hangs = false;          // no call comes back
  Duration old{};              // how old a reading is when it comes
  std::uint64_t throttle = 0;  // reasons that the driver gives besides
  std::optional<Joules> counter = {};  // the energy counter's value, whatever the use
  std::string lock = {};               // the last lock, "900..1200"
  int round = 0;                       // the house's round
  int open = 0;                        // how many devices have it open
  bool fails_to_list = false;          // the list of processes fails
  std::optional<std::vector<GpuProcess>> processes = {};  // empty: as the simulation has them
  std::string pci_bus_id = {};              // of a GPU that may be powered down; empty: it may not
  int opened = 0, calls = 0;                // so far
  SharedModes modes = {};                   // empty: the maker's
  SharedCard card = {};                     // empty: it is not read
  std::shared_ptr<DriverCosts> costs = {};  // null: calls cost nothing
};

// A call that is polled for, as NvmlSource makes them: what it answers is of the time when it was
// begun; asked twice it is busy; one that hangs is stuck after two seconds.
template <class T>
struct SlowCall {
  std::optional<Result<T>> answer = {};  // empty: none was begun
  int due = 0;                           // the round in which it comes
  Instant begun{};
  bool refused = false;
};

class HouseDevice final : public TelemetrySource, public ClockControl {
 public:
  static constexpr Duration kStuck = std::chrono::seconds(2);

  HouseDevice(SimGpu& gpu, Clock& clock, int index, GpuTrouble& trouble)
      : clock_(clock), gpu_(gpu), inner_(gpu, clock, index), trouble_(trouble) {
    ++trouble_.open;
    ++trouble_.opened;
    capability_ = inner_.capability();
    if (trouble.modes) capability_.modes = *trouble.modes;
    if (trouble.pci_bus_id.empty()) return;
    capability_.id.pci_bus_id = trouble.pci_bus_id;
    capability_.persistence_mode = false;
  }
  ~HouseDevice() override { --trouble_.open; }

  const Capability& capability() const override { return capability_; }
  std::shared_ptr<const DriverCosts> costs() const override { return trouble_.costs; }
  Result<Sample> read(const ReadPlan& plan) override {
    if (trouble_.hangs) return stuck();
    auto sample = now().read(plan);
    if (!sample.ok()) return sample;
    sample->time -= trouble_.old;
    sample->modes = trouble_.modes;
    sample->card = trouble_.card;
    if (sample->energy && trouble_.counter) sample->energy = trouble_.counter;
    if (trouble_.throttle != 0)
      sample->throttle_reasons = sample->throttle_reasons.value_or(0) | trouble_.throttle;
    return sample;
  }
  void start_processes() override {
    begin(listing_, [this] { return processes(); });
  }
  std::optional<Result<std::vector<GpuProcess>>> poll_processes() override {
    return slow() ? poll(listing_) : processes();
  }
  void start_tenancy() override {
    begin(survey_, [this] { return tenancy(); });
  }
  std::optional<Result<Tenancy>> poll_tenancy() override {
    return slow() ? poll(survey_) : tenancy();
  }
  Result<std::vector<GpuProcess>> processes() override {
    SimDevice& device = now();
    if (trouble_.fails_to_list) return Error{Errc::query_failed, "no list of processes"};
    if (trouble_.processes && !trouble_.faults.gpu_lost) return *trouble_.processes;
    return device.processes();
  }
  // With MIG as the simulation has it; the troubles of readings and lists are not in it.
  Result<Tenancy> tenancy() override {
    if (!gpu_.mig()) return TelemetrySource::tenancy();
    if (trouble_.hangs) return stuck();
    return now().tenancy();
  }
  Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) override {
    if (trouble_.hangs) return stuck();
    trouble_.lock = std::to_string(static_cast<int>(lowest.value())) + ".." +
                    std::to_string(static_cast<int>(highest.value()));
    return now().lock_sm_clock(lowest, highest);
  }
  Result<void> reset_sm_clock() override {
    if (trouble_.hangs) return stuck();
    return now().reset_sm_clock();
  }
  Result<void> lock_memory_clock(Megahertz lowest, Megahertz highest) override {
    if (trouble_.hangs) return stuck();
    return now().lock_memory_clock(lowest, highest);
  }
  Result<void> reset_memory_clock() override {
    if (trouble_.hangs) return stuck();
    return now().reset_memory_clock();
  }
  Result<void> set_power_limit(Watts limit) override {
    if (trouble_.hangs) return stuck();
    return now().set_power_limit(limit);
  }
  Result<GpuSettings> settings() override {
    if (trouble_.hangs) return stuck();
    return now().settings();
  }

 private:
  static Error stuck() { return {Errc::gpu_stuck, "a driver call has not come back"}; }
  bool slow() const { return trouble_.answers_later > 0; }
  // One call after the other, as a thread makes them.
  template <class T, class Call>
  void begin(SlowCall<T>& slot, Call call) {
    if (!slow()) return;
    if (slot.answer && trouble_.round < slot.due) {
      slot.refused = true;
      return;
    }
    slot = {call(), std::max(trouble_.round, free_) + trouble_.answers_later, clock_.now()};
    free_ = slot.due;
  }
  template <class T>
  std::optional<Result<T>> poll(SlowCall<T>& slot) {
    if (slot.answer && !trouble_.hangs && trouble_.round >= slot.due)
      return std::exchange(slot, {}).answer;
    if (trouble_.hangs && slot.answer && clock_.now() - slot.begun > kStuck) {
      slot = {};
      return stuck();
    }
    if (std::exchange(slot.refused, false)) return Error{Errc::busy, "busy with an earlier call"};
    if (slot.answer) return std::nullopt;
    return Error{Errc::invalid_argument, "no such call was begun"};
  }
  // A handle to a GPU that was lost stays dead, as a driver's does: it has to be opened anew.
  SimDevice& now() {
    ++trouble_.calls;
    dead_ = dead_ || trouble_.faults.gpu_lost;
    inner_.faults = trouble_.faults;
    inner_.faults.gpu_lost = dead_;
    return inner_;
  }
  Clock& clock_;
  const SimGpu& gpu_;
  SimDevice inner_;
  Capability capability_;
  bool dead_ = false;
  GpuTrouble& trouble_;
  SlowCall<std::vector<GpuProcess>> listing_;
  SlowCall<Tenancy> survey_;
  int free_ = 0;  // the round in which the last call that was begun comes back
};

class House {
 public:
  explicit House(int gpus, const char* chip = "V100-SXM2") {
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
  ~House() { worker.reset(); }

  void start(const Settings& settings = {}) {
    worker.reset();
    WorkerOptions options{.state_file = "state.json"};
    options.fleet.journal = journal();
    options.fleet.life = life;
    options.fleet.run_folder = folder + "/run";
    options.fleet.audit = AuditLog(audit_file());
    options.models = models();
    options.stores = BackgroundWorker::Where::at_once;
    options.tune_file = folder + "/state/tune.db";
    options.config = config;
    options.fleet.open = [this](const std::string& choice) -> OpeningPoll {
      return [this, choice, due = rounds + opens_later]() -> std::optional<Result<OpenGpus>> {
        if (rounds < due) return std::nullopt;
        if (opening_fails) return Error{Errc::io, "the driver is not ready"};
        return open(choice);
      };
    };
    options.fleet.leases.take_lost = [this] { return std::exchange(lost_leases, {}); };
    options.fleet.leases.take = [this](const DomainId& domain) {
      ++leases_requested;
      return take_lease(folder + "/run", short_name(domain), "the worker");
    };
    options.attribution = attribution;
    options.allocations = allocations;
    options.pods = pods;
    options.fleet.log = Log([this](const LogRecord& record) { logged.push_back(record.text); });
    options.sinks.push_back([this](const GpuRecord& each) { note(each.record); });
    options.tracker = tracker;
    options.history.file = history_file;
    options.sleep = sleep;
    options.bus_ids = bus_ids;
    worker = std::make_unique<Worker>(std::move(options), settings, clock);
    while (round() && !worker->running()) {
    }
  }
  // Every call that is polled for takes that many rounds, and so does opening GPUs.
  void answer_later(int by) {
    opens_later = by;
    for (const auto& each : troubles) each->answers_later = by;
  }
  bool round() {
    ++rounds;
    for (const auto& each : troubles) each->round = rounds;
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
    worker->on_message(text, {pid, uid, clock.now()});
  }
  // As an operator, whose command is done by the next round.
  std::string ask(const std::string& request) {
    if (auto now = worker->operators().handle(request, {1, 0, 1})) return *now;
    (void)worker->step().ok();
    const auto late = worker->operators().take_late();
    return late.empty() ? "" : late.back().second;
  }

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
  bool has_logged(const std::string& part) const {
    for (const std::string& text : logged)
      if (text.find(part) != std::string::npos) return true;
    return false;
  }
  std::string uuid_of(int i) const {
    return sim_capability(sims[static_cast<std::size_t>(i)]->chip(), i).id.uuid;
  }
  static std::string uuid(int i) { return sim_capability(sim_chips().front(), i).id.uuid; }

  BootIdentity life{"boot", "load"};
  const Folder home;
  const std::string folder = home.path();
  std::string history_file = folder + "/state/history.db";
  FakeClock clock;
  int rounds = 0, opens_later = 0;
  bool opening_fails = false;
  int leases_requested = 0;
  std::vector<DomainId> lost_leases = {};
  DriverTimes driver = {};  // with times, each GPU has a thread for its calls
  std::vector<std::unique_ptr<SimGpu>> sims;
  std::vector<std::unique_ptr<GpuTrouble>> troubles;
  std::vector<std::string> logged;
  std::function<void(const Record&)> note = [](const Record&) {};
  std::map<std::int64_t, ProcessFacts> people;   // the processes of this machine
  AttributionService::Options attribution = {};  // without a namer: none
  AllocationService::Options allocations = {};   // kept nowhere
  PodWishes::Options pods = {};                  // none
  ConfigSource config = {};                      // of no file
  GpuSleepOptions sleep = {};                    // without a reader: no GPU is left asleep
  std::vector<std::string> bus_ids = {};
  WorkloadTracker::Options tracker{.readers = readers(), .where = BackgroundWorker::Where::at_once};
  std::unique_ptr<Worker> worker;

 private:
  ProcessReaders readers() {
    ProcessReaders out;
    const auto of = [this](std::int64_t pid) {
      const auto at = people.find(pid);
      return at != people.end() ? std::optional(at->second) : std::nullopt;
    };
    out.facts = [of](std::int64_t pid) {
      auto facts = of(pid);
      if (facts) facts->asked.clear(), facts->ancestors.clear();
      return facts;
    };
    out.start = [of](std::int64_t pid) {
      const auto facts = of(pid);
      return facts ? std::optional(facts->started) : std::nullopt;
    };
    out.ancestors = [of](const ProcessFacts& process) {
      const auto facts = of(process.pid);
      return facts ? facts->ancestors : std::vector<Ancestor>();
    };
    out.hold = [](std::int64_t) { return ProcessHandle(); };  // people have no processes
    out.asked = [of](std::int64_t pid) {
      const auto facts = of(pid);
      return facts ? facts->asked : "";
    };
    return out;
  }
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
      if (driver.takes) {
        auto threaded =
            std::make_unique<ThreadedDevice>(std::move(gpu.source), gpu.control, clock, driver);
        gpu.control = threaded.get();
        gpu.source = std::move(threaded);
      }
      out.gpus.push_back(std::move(gpu));
    }
    return out;
  }
};

// As state.json has it.
inline Json first_gpu(const House& house) {
  return parse_json(*read_file(house.folder + "/run/state.json"))["gpus"][0];
}

}  // namespace derate::cli
