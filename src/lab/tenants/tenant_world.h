// A simulated GPU with several tenants and the truth of whose its power is: what methods of
// attribution are judged on. Its power follows no method's form: each unit's watts bend with its
// use, a unit without a counter draws too, operand data put a factor on everything that counters
// cannot see, and what tenants draw together is not the sum (device/sim/shared_power.h).
//
// Every parameter here was chosen before any method that learns was written, and stays.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "core/tenancy.h"
#include "device/sim/sim_device.h"
#include "device/sim/sim_gpu.h"

namespace derate {

// Watts of the whole GPU above its idle power with every unit busy at the highest clock. Assumed:
// round figures that bring the H200's measured kernels to 300 to 640 W.
struct UnitWatts {
  double sm = 90, tensor = 380, fp32 = 240, fp64 = 300, integer = 130, dram = 200;
};

// What a process without MIG does. Where two numbers stand, one is drawn between them for each.
struct ProcessLoad {
  double demand[2] = {1, 1};  // of the GPU's time, with the GPU to itself
  // It works for so long and pauses for so long; 0: it always works.
  double on_s[2] = {0, 0}, off_s[2] = {0, 0};
  double turn_s = 0;  // the processes that have turns work one after the other, each for so long
  // A process ends after so long and another comes after so long; 0: one for the whole run.
  double life_s[2] = {0, 0}, away_s[2] = {0, 0};
  int kernel = -1;         // of tenant_workloads(); below 0: drawn
  double new_watts_s = 0;  // other data, so other watts, after so long; 0: never
  bool parked = false;     // a context and not one kernel
};

struct TenantScenario {
  const char* name;
  const char* summary;
  // MIG profiles; empty: `processes` share the whole GPU by time slices.
  const char* layout = "3g,2g,1g,1g";
  int processes = 0;
  // Tenants with equal counters draw different watts: where they do, learning has something to win.
  bool watts_differ = true;
  double data_gain = 0.15;  // sd of the logarithm of a job's factor
  double hidden_watts = 0;  // most that a unit without a counter draws, as UnitWatts; a workload
                            // has its own part of it
  double saturation = 0.1;  // a unit's watts: u (1 + s) / (1 + s u)
  double counter_scale[2] = {1, 1};  // each instance's counters show that times the truth
  std::optional<double> power_limit_watts = {};
  double energy_lag_s = 0;
  bool part_time_sensor = true;  // the energy counter sees 25 of 100 ms (arXiv 2312.02741)
  bool announced = true;         // a new job is a new process
  bool lockstep = false;         // all do the same at the same times
  double job_s[2] = {60, 300};   // jobs last so long
  bool twins = false;  // the first two run alike; the third parks a context, the fourth has none
  double lost = 0;     // readings that fail
  double pause_s = 5;  // most between two jobs, where they are announced
  double base_step_watts = 0;     // the board draws that much more from half of the run on
  double unit_scale[2] = {1, 1};  // each unit's watts are that times UnitWatts, drawn
  bool known_chip = true;         // methods are told which chip it is
  bool fast = false;              // work comes and goes in nearly the sensor's rhythm
  // The first tenant shows that part of its counters while any other works.
  double hides = 1;
  // The clock is held, in parts of the highest, another each 5 to 30 s; cores draw by its power of
  // that (empty: as the chip's voltage has it).
  double clock[2] = {1, 1};
  std::optional<double> core_exponent = {};
  // Processes without MIG of which each does as told, and a driver that counts as a real one
  // (SensorSpec::process_sample).
  std::span<const ProcessLoad> loads = {};
  double process_drift = 1;  // SensorSpec::process_drift
  double overlap = 0;        // SimGpu::set_overlap
  // Beyond the study, with bars of its own: what may be misattributed after 5 minutes at most.
  bool stress = false;
  std::optional<double> most_misattributed = {};

  // Processes without MIG whose driver counts samples.
  bool counts_samples() const { return !loads.empty(); }
};

// The scenarios, by letters as in the study that they follow.
std::span<const TenantScenario> tenant_scenarios();
// Errors: not_found naming them.
Result<const TenantScenario*> find_tenant_scenario(std::string_view name);

// The workloads that jobs are made of: the H200's own with known counters.
Result<std::vector<Workload>> tenant_workloads();

// What the unit without a counter draws for each of them. A property of the kernels, not of a run:
// the same for every seed.
std::vector<double> hidden_watts_of(std::span<const Workload> workloads,
                                    const TenantScenario& scenario);

// A kernel mix as the generator knows it: the workload's counters and rates, watts by UnitWatts.
struct UnitWork {
  const Workload* workload = nullptr;
  double hidden = 0;  // watts, whole GPU
  double gain = 1;    // of operand data
  double saturation = 0;
  UnitWatts watts;
  std::optional<double> core_exponent = {};  // TenantScenario
};
// One stretch of it at that part of its intensity, on `share` of the multiprocessors and
// `memory_share` of the memory. Its power is what SimGpu expects: of the whole GPU.
Phase unit_phase(const UnitWork& work, const SimChip& chip, double intensity, double share,
                 double memory_share);

struct TenantTruth {
  std::string key, workload;  // of the instance, or the process; what runs there now, or ""
  Joules above_base{};        // in this tick
  Joules alone{};             // as SimJob has it
};

// The world runs in ticks of one second.
class TenantWorld {
 public:
  // Errors: those of the workloads and the layout.
  static Result<std::unique_ptr<TenantWorld>> create(const TenantScenario& scenario,
                                                     std::uint64_t seed, Duration length);

  // Goes on by a tick. What the device shows then; an error is a lost reading, and the truth of it
  // is added to the next.
  Result<Tenancy> tick();
  // The board's quick readings since the tick before, ten a second.
  const std::vector<Sample>& readings() const { return readings_; }
  // What was true since the last reading that was not lost, in the order of the slots.
  const std::vector<TenantTruth>& truth() const { return truth_; }
  Joules energy() const { return gpu_->energy(); }  // of the board, in truth
  // Who a GPU instance or a process is, as a daemon finds it out.
  std::string key_of_instance(int id) const;
  std::string key_of_process(std::int64_t pid) const;
  const SimChip& chip() const { return chip_; }
  Duration elapsed() const { return now_; }

 private:
  struct Job {
    double begin_s = 0, end_s = 0;
    std::size_t workload = 0;
    double gain = 1;
    std::uint64_t pattern = 0;  // seed of its ups and downs
    const ProcessLoad* load = nullptr;
    double turns = 1;  // processes that take turns with it, itself included
  };
  struct Slot {
    std::optional<int> instance;
    double share = 1, memory_share = 1;
    std::vector<Job> jobs;
    std::size_t next = 0;
    std::optional<SimGpu::TenantId> running;
    int process = 0;               // counts those that were here
    TenantTruth reported;          // of jobs that are gone, and up to the last reading
    Joules above_base{}, alone{};  // of jobs that are gone
  };
  TenantWorld(const TenantScenario& scenario, SimChip chip, std::vector<Workload> workloads);
  Result<void> set_up(std::uint64_t seed, Duration length);
  std::vector<Job> plan(std::size_t slot, std::uint64_t seed, double length) const;
  std::vector<Job> plan_load(std::size_t slot, std::uint64_t seed, double length) const;
  Workload make_work(const Slot& slot, const Job& job) const;
  void park(Slot& slot);
  void begin(Slot& slot, const Job& job);
  void end(Slot& slot);
  void follow_plan(Slot& slot);
  void hide_counters();
  void hold_clock();
  void record_truth();
  std::string key_of_slot(std::size_t at) const;

  TenantScenario scenario_;
  SimChip chip_;
  std::unique_ptr<SimGpu> gpu_;
  std::vector<Workload> workloads_;
  std::vector<double> hidden_;  // watts of the unit without a counter, by workload
  UnitWatts watts_;
  FakeClock clock_;
  std::unique_ptr<SimDevice> device_;
  std::vector<Slot> slots_;
  std::vector<TenantTruth> truth_;
  std::vector<Sample> readings_;
  Duration now_{}, length_{};
  std::mt19937_64 clocks_;
  Duration clock_until_{};
};

}  // namespace derate
