#include "lab/tenants/tenant_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/suggest.h"
#include "device/sim/sim_mig.h"

namespace derate {
namespace {

constexpr ProcessLoad kLightAndHeavy[] = {{.demand = {0.08, 0.08}, .kernel = 2},
                                          {.demand = {0.85, 0.85}, .kernel = 2}};
constexpr ProcessLoad kThreeLight[] = {{.demand = {0.05, 0.05}},
                                       {.demand = {0.05, 0.05}},
                                       {.demand = {0.05, 0.05}},
                                       {.demand = {0.8, 0.8}}};
constexpr ProcessLoad kSaturating[] = {{}, {}};
constexpr ProcessLoad kSameWatts[] = {{.kernel = 2}, {.kernel = 2}};
constexpr ProcessLoad kShortTurns[] = {{.turn_s = 0.2}, {.turn_s = 0.2}, {.turn_s = 0.2}};
constexpr ProcessLoad kTurns1[] = {{.turn_s = 1}, {.turn_s = 1}};
constexpr ProcessLoad kTurns4[] = {{.turn_s = 4}, {.turn_s = 4}};
constexpr ProcessLoad kTurns15[] = {{.turn_s = 15}, {.turn_s = 15}, {.turn_s = 15}};
constexpr ProcessLoad kTurns60[] = {{.turn_s = 60}, {.turn_s = 60}};
constexpr ProcessLoad kOnOff{.demand = {0.3, 1}, .on_s = {3, 48}, .off_s = {3, 48}};
constexpr ProcessLoad kThreeOnOff[] = {kOnOff, kOnOff, kOnOff};
constexpr ProcessLoad kEightOnOff[] = {kOnOff, kOnOff, kOnOff, kOnOff,
                                       kOnOff, kOnOff, kOnOff, kOnOff};
constexpr ProcessLoad kParked{.parked = true};
constexpr ProcessLoad kHalfParked[] = {kOnOff, kParked, kOnOff, kParked, kOnOff, kParked};
constexpr ProcessLoad kVisitor{.demand = {0.01, 1}, .life_s = {20, 120}, .away_s = {0, 60}};
constexpr ProcessLoad kVisitors[] = {kVisitor, kVisitor, kVisitor, kVisitor};
constexpr ProcessLoad kOtherWatts{
    .demand = {0.2, 1}, .on_s = {10, 100}, .off_s = {5, 50}, .new_watts_s = 90};
constexpr ProcessLoad kOthersWatts[] = {kOtherWatts, kOtherWatts, kOtherWatts};
constexpr ProcessLoad kSteady{.demand = {0.02, 0.4}};
constexpr ProcessLoad kSteadies[] = {kSteady, kSteady, kSteady, kSteady, kSteady};
constexpr ProcessLoad kSometimes{.on_s = {60, 200}, .off_s = {20, 60}};
constexpr ProcessLoad kLocked[] = {kSometimes, kSometimes};

// The letters are the study's; P, S and T are ours.
constexpr TenantScenario kScenarios[] = {
    {.name = "A", .summary = "operand data change a job's power by 15 %"},
    {.name = "B",
     .summary = "the same watts per counter for everyone",
     .watts_differ = false,
     .data_gain = 0},
    {.name = "C", .summary = "operand data change a job's power by 30 %", .data_gain = 0.3},
    {.name = "D", .summary = "seven instances of one slice", .layout = "1g,1g,1g,1g,1g,1g,1g"},
    {.name = "E", .summary = "all do the same at the same times", .lockstep = true},
    {.name = "F", .summary = "the power limit holds the clock down", .power_limit_watts = 250},
    {.name = "H", .summary = "jobs change and no process does", .announced = false},
    {.name = "I", .summary = "a unit without a counter draws up to 150 W", .hidden_watts = 150},
    {.name = "J", .summary = "the energy counter is half a second late", .energy_lag_s = 0.5},
    {.name = "K",
     .summary = "each instance's counters show 0.4 to 1.3 of the truth",
     .counter_scale = {0.4, 1.3}},
    {.name = "L",
     .summary = "units draw less for each further percent; data change nothing",
     .watts_differ = false,
     .data_gain = 0,
     .saturation = 0.8},
    {.name = "M",
     .summary = "hidden unit, saturation, late counter, jobs that nobody announces, lost readings",
     .hidden_watts = 150,
     .saturation = 0.8,
     .energy_lag_s = 0.5,
     .announced = false,
     .lost = 0.01},
    {.name = "N", .summary = "jobs of 10 to 40 s", .job_s = {10, 40}},
    {.name = "P", .summary = "three processes without MIG", .layout = "", .processes = 3},
    {.name = "P1", .summary = "demands of 8 and 85 %", .loads = kLightAndHeavy},
    {.name = "P2", .summary = "demands of 5, 5, 5 and 80 %", .loads = kThreeLight},
    {.name = "P3", .summary = "two that always saturate", .loads = kSaturating},
    {.name = "P4",
     .summary = "the same, equal watts",
     .watts_differ = false,
     .data_gain = 0,
     .loads = kSameWatts},
    {.name = "P5", .summary = "turns of 0.2 s", .loads = kShortTurns},
    {.name = "P6", .summary = "turns of 1 s", .loads = kTurns1},
    {.name = "P7", .summary = "turns of 4 s", .loads = kTurns4},
    {.name = "P8", .summary = "turns of 15 s", .loads = kTurns15},
    {.name = "P9", .summary = "turns of 60 s", .loads = kTurns60},
    {.name = "P10", .summary = "three that pause", .loads = kThreeOnOff},
    {.name = "P11", .summary = "eight that pause", .loads = kEightOnOff},
    {.name = "P12", .summary = "three that pause, three parked", .loads = kHalfParked},
    {.name = "P13", .summary = "they come and go", .loads = kVisitors},
    {.name = "P14", .summary = "kernels change their watts", .loads = kOthersWatts},
    {.name = "P15", .summary = "five of 2 to 40 %", .loads = kSteadies},
    {.name = "P16",
     .summary = "samples in step with turns",
     .loads = kLocked,
     .process_drift = 0.1},
    {.name = "P17",
     .summary = "three that pause, side by side as with MPS",
     .loads = kThreeOnOff,
     .overlap = 0.5},
    {.name = "Q1",
     .summary = "the idle board draws 20 W more half way",
     .base_step_watts = 20,
     .stress = true,
     .most_misattributed = 0.03},
    {.name = "Q2",
     .summary = "seven instances of one slice, all do the same at the same times",
     .layout = "1g,1g,1g,1g,1g,1g,1g",
     .lockstep = true,
     .stress = true,
     .most_misattributed = 0.06},
    {.name = "Q3", .summary = "jobs of 5 s", .job_s = {5, 5}, .stress = true},
    {.name = "Q4",
     .summary = "work that comes and goes each 0.095 to 0.105 s, as the sensor looks",
     .fast = true,
     .stress = true},
    {.name = "Q5",
     .summary = "an unknown chip, whose units draw 0.4 to 2.1 of the H200's",
     .unit_scale = {0.4, 2.1},
     .known_chip = false,
     .stress = true},
    {.name = "Q6",
     .summary = "one of two hides its counters while the other works",
     .layout = "3g,2g",
     .pause_s = 60,
     .hides = 0.05,
     .stress = true},
    {.name = "U1",
     .summary = "the clock is 0.5 to 1 of the highest, another each 5 to 30 s",
     .clock = {0.5, 1},
     .stress = true},
    {.name = "U2",
     .summary = "as U1, and cores draw by its power of 1.5",
     .clock = {0.5, 1},
     .core_exponent = 1.5,
     .stress = true},
    {.name = "U3",
     .summary = "as U1, and cores draw by its power of 3",
     .clock = {0.5, 1},
     .core_exponent = 3,
     .stress = true},
    {.name = "S", .summary = "as A, with a sensor that sees all", .part_time_sensor = false},
    {.name = "T",
     .summary = "twins, a parked context and an empty instance",
     .layout = "2g,2g,1g,1g",
     .watts_differ = false,
     .data_gain = 0,
     .twins = true},
};

double uniform(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

double bent(double used, double saturation) {
  return used * (1 + saturation) / (1 + saturation * used);
}

// A job's ups and downs: what it uses for how long, and how long it waits then.
struct Stretch {
  double intensity = 1, work_s = 1, gap_s = 0;
};

// Training: steps with a short gap.
std::vector<Stretch> steps(std::mt19937_64& random) {
  const double length = uniform(random, 0.3, 2.5), gap = uniform(random, 0.03, 0.2) * length;
  const double level = uniform(random, 0.7, 1);
  std::vector<Stretch> out;
  for (int i = 0; i < 12; ++i)
    out.push_back({level * uniform(random, 0.95, 1), length * uniform(random, 0.9, 1.1), gap});
  // An evaluation or a checkpoint now and then.
  out.push_back(
      {level * uniform(random, 0.3, 0.8), uniform(random, 1, 8), uniform(random, 0.5, 4)});
  return out;
}

// Serving: bursts whose number follows the hour.
std::vector<Stretch> bursts(std::mt19937_64& random) {
  const double level = uniform(random, 0.6, 1);
  std::vector<Stretch> out;
  for (int spell = 0; spell < 4; ++spell) {
    const double duty = uniform(random, 0.1, 0.85), length = uniform(random, 0.03, 0.2);
    for (int i = 0; i < 12; ++i)
      out.push_back({level, length, length * (1 / duty - 1) * uniform(random, 0.5, 1.5)});
  }
  return out;
}

// Batches: long stretches at different levels, with pauses.
std::vector<Stretch> batches(std::mt19937_64& random) {
  std::vector<Stretch> out;
  for (int i = 0; i < 8; ++i)
    out.push_back(
        {uniform(random, 0.3, 1), uniform(random, 3, 20), i % 2 == 1 ? uniform(random, 1, 6) : 0});
  return out;
}

std::vector<Stretch> pattern(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  switch (random() % 3) {
    case 0:
      return steps(random);
    case 1:
      return bursts(random);
    default:
      return batches(random);
  }
}

// Bursts that keep the GPU busy for the demanded share of the time, `length` seconds of them.
void add_bursts(std::mt19937_64& random, double demand, double length, std::vector<Stretch>& out) {
  constexpr double kWhole = 0.97;
  if (demand > kWhole) return out.push_back({1, length, 0});
  for (double done = 0; done < length;) {
    const double cycle = std::max(uniform(random, 0.2, 0.6), 0.015 / demand);
    const double burst = demand * cycle * uniform(random, 0.7, 1.3);
    out.push_back({1, burst, (1 - demand) * cycle});
    done += cycle;
  }
}

std::vector<Stretch> stretches_of(const ProcessLoad& load, double turns, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  if (load.turn_s > 0) return {{1, load.turn_s, load.turn_s * (turns - 1)}};
  const double demand = uniform(random, load.demand[0], load.demand[1]);
  std::vector<Stretch> out;
  if (load.on_s[1] <= 0) {
    add_bursts(random, demand, 30, out);
    return out;
  }
  for (int i = 0; i < 6; ++i) {
    add_bursts(random, demand, uniform(random, load.on_s[0], load.on_s[1]), out);
    out.back().gap_s += uniform(random, load.off_s[0], load.off_s[1]);
  }
  return out;
}

// Kernels of tens of milliseconds whose rhythm is nearly the sensor's own: what it sees of a second
// is not what there was.
std::vector<Stretch> near_the_sensors_rhythm(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const double cycle = uniform(random, 0.095, 0.105), duty = uniform(random, 0.2, 0.8);
  return {{uniform(random, 0.6, 1), cycle * duty, cycle * (1 - duty)}};
}

// Nothing is drawn where nothing is to be: the worlds before this one stay as they were.
void draw_unit_watts(std::mt19937_64& random, const TenantScenario& scenario, UnitWatts& watts) {
  const auto& [low, high] = scenario.unit_scale;
  if (low == high) return;
  for (double* unit :
       {&watts.sm, &watts.tensor, &watts.fp32, &watts.fp64, &watts.integer, &watts.dram})
    *unit *= uniform(random, low, high);
}

Activity scaled(Activity activity, double intensity) {
  for (const auto& [name, member] : activity_shares())
    if (auto& share = activity.*member) *share = *share * intensity;
  return activity;
}

double watts_of(const UnitWork& work, const Activity& used, double core, double memory_ratio) {
  const UnitWatts& most = work.watts;
  const auto unit = [&](double watts, const std::optional<Fraction>& share) {
    return share ? watts * bent(share->value(), work.saturation) : 0.0;
  };
  const double units = unit(most.sm, used.sm) + unit(most.tensor, used.tensor) +
                       unit(most.fp32, used.fp32) + unit(most.fp64, used.fp64) +
                       unit(most.integer, used.integer);
  return work.gain * (core * units + memory_ratio * unit(most.dram, used.dram));
}

}  // namespace

std::span<const TenantScenario> tenant_scenarios() { return kScenarios; }

Result<const TenantScenario*> find_tenant_scenario(std::string_view name) {
  std::string known;
  for (const TenantScenario& scenario : kScenarios) {
    if (name == scenario.name) return &scenario;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", scenario.name);
  }
  return Error{Errc::not_found,
               fmt::format("no scenario '{}'{}", name, choices(name, ": there are ", known))};
}

Result<std::vector<Workload>> tenant_workloads() {
  const SimChip* chip = TRY(find_sim_chip("H200"));
  std::vector<Workload> out = TRY(built_in_workloads(*chip));
  std::erase_if(out, [](const Workload& workload) {
    const Activity& activity = workload.phases[0].points.back().activity;
    return !activity.sm || !activity.dram || !activity.tensor || workload.phases.size() > 1;
  });
  return out;
}

std::vector<double> hidden_watts_of(std::span<const Workload> workloads,
                                    const TenantScenario& scenario) {
  std::mt19937_64 kernels(4711);
  std::vector<double> out;
  for (std::size_t i = 0; i < workloads.size(); ++i)
    out.push_back(uniform(kernels, 0, 1) * scenario.hidden_watts);
  return out;
}

Phase unit_phase(const UnitWork& work, const SimChip& chip, double intensity, double share,
                 double memory_share) {
  Phase phase;
  const double top = chip.sm_clocks.back().value();
  const double top_voltage = chip.voltage.at(chip.sm_clocks.back());
  for (std::size_t i = 0; i < chip.sm_clocks.size(); ++i) {
    const Megahertz clock = chip.sm_clocks[i];
    const OperatingPoint& base = work.workload->phases[0].points[i];
    const double voltage = chip.voltage.at(clock) / top_voltage;
    const double core = work.core_exponent ? std::pow(clock.value() / top, *work.core_exponent)
                                           : voltage * voltage * clock.value() / top;
    OperatingPoint point;
    point.rate = 1;
    point.activity = scaled(base.activity, intensity);
    if (base.gpu_utilisation) point.gpu_utilisation = *base.gpu_utilisation * intensity;
    if (base.memory_utilisation) point.memory_utilisation = *base.memory_utilisation * intensity;
    const double watts = watts_of(work, point.activity, core, memory_share / share) +
                         work.gain * work.hidden * intensity * core;
    point.power = Watts(chip.idle_power.at(clock) + watts);
    phase.points.push_back(std::move(point));
  }
  return phase;
}

TenantWorld::TenantWorld(const TenantScenario& scenario, SimChip chip,
                         std::vector<Workload> workloads)
    : scenario_(scenario), chip_(std::move(chip)), workloads_(std::move(workloads)) {}

Result<std::unique_ptr<TenantWorld>> TenantWorld::create(const TenantScenario& scenario,
                                                         std::uint64_t seed, Duration length) {
  SimChip chip = *TRY(find_sim_chip("H200"));
  if (scenario.part_time_sensor) chip.sensors.energy_sight = std::chrono::milliseconds(25);
  chip.sensors.energy_lag = from_seconds(scenario.energy_lag_s);
  chip.sensors.loss_probability = scenario.lost;
  if (scenario.counts_samples()) chip.sensors.process_sample = std::chrono::milliseconds(200);
  chip.sensors.process_drift = scenario.process_drift;
  auto workloads = TRY(tenant_workloads());
  std::unique_ptr<TenantWorld> world(
      new TenantWorld(scenario, std::move(chip), std::move(workloads)));
  TRY(world->set_up(seed, length));
  return world;
}

Result<void> TenantWorld::set_up(std::uint64_t seed, Duration length) {
  std::mt19937_64 random(seed * 7919 + 17);
  hidden_ = hidden_watts_of(workloads_, scenario_);
  length_ = length;
  clocks_.seed(seed * 6700417 + 5);
  draw_unit_watts(random, scenario_, watts_);

  SimOptions options;
  options.seed = seed;
  gpu_ = std::make_unique<SimGpu>(chip_, options);
  device_ = std::make_unique<SimDevice>(*gpu_, clock_, 0, seed);
  if (scenario_.power_limit_watts) gpu_->set_power_limit(Watts(*scenario_.power_limit_watts));
  gpu_->set_overlap(scenario_.overlap);
  const bool mig = scenario_.processes == 0 && !scenario_.counts_samples();
  if (mig) {
    const auto instances = TRY(make_instances(chip_, scenario_.layout));
    const MigProfile& whole = mig_profiles(chip_).back();
    for (const GpuInstance& instance : instances) {
      slots_.push_back(
          {.instance = instance.id,
           .share = static_cast<double>(instance.multiprocessors) / whole.multiprocessors,
           .memory_share = static_cast<double>(instance.memory_slices) / whole.memory_slices});
      device_->counter_errors.scale[instance.id] =
          uniform(random, scenario_.counter_scale[0], scenario_.counter_scale[1]);
    }
    gpu_->partition(instances);
  }
  const std::size_t processes = scenario_.loads.empty()
                                    ? static_cast<std::size_t>(scenario_.processes)
                                    : scenario_.loads.size();
  for (std::size_t i = 0; !mig && i < processes; ++i) slots_.push_back({});
  for (std::size_t i = 0; i < slots_.size(); ++i)
    slots_[i].jobs = !scenario_.counts_samples() ? plan(i, seed, seconds(length))
                                                 : plan_load(i, seed, seconds(length));
  for (std::size_t i = 0; i < scenario_.loads.size(); ++i)
    if (scenario_.loads[i].parked) park(slots_[i]);
  if (scenario_.twins) park(slots_[2]);
  truth_.resize(slots_.size());
  return {};
}

// Jobs one after the other, with a pause of up to 5 s when they are announced.
std::vector<TenantWorld::Job> TenantWorld::plan(std::size_t slot, std::uint64_t seed,
                                                double length) const {
  if (scenario_.twins && slot > 1) return {};
  const bool together = scenario_.lockstep || scenario_.twins;
  std::mt19937_64 random(seed * 104729 + (together ? 0 : slot) * 1009 + 1);
  std::normal_distribution<double> gauss(0, 1);
  std::mt19937_64 own(seed * 15485863 + slot);  // what differs of those in step
  std::vector<Job> out;
  double now = uniform(random, 0, 20);
  while (now < length) {
    Job job{.begin_s = now};
    job.end_s = now + uniform(random, scenario_.job_s[0], scenario_.job_s[1]);
    job.pattern = random();
    job.workload = (scenario_.lockstep ? own() : random()) % workloads_.size();
    job.gain = std::exp(scenario_.data_gain * gauss(scenario_.lockstep ? own : random));
    // Twins do the same work, not in the same moments.
    if (scenario_.twins) job.pattern += slot;
    now = job.end_s + (scenario_.announced ? uniform(random, 0, scenario_.pause_s) : 0);
    out.push_back(job);
  }
  return out;
}

// One process for the whole run, or one after the other; one whose data change is one process of
// several jobs.
std::vector<TenantWorld::Job> TenantWorld::plan_load(std::size_t slot, std::uint64_t seed,
                                                     double length) const {
  const ProcessLoad& load = scenario_.loads[slot];
  if (load.parked) return {};
  std::mt19937_64 random(seed * 104729 + slot * 1009 + 1);
  std::normal_distribution<double> gauss(0, 1);
  const auto is_one = [](const ProcessLoad& each) { return each.turn_s > 0; };
  const auto turns = std::count_if(scenario_.loads.begin(), scenario_.loads.end(), is_one);
  const bool comes = load.life_s[1] > 0;
  std::vector<Job> out;
  double now = load.turn_s > 0 ? load.turn_s * static_cast<double>(slot)
               : comes         ? uniform(random, 0, 20)
                               : uniform(random, 0, 5);
  const std::uint64_t pattern = random(), workload = random();
  while (now < length) {
    Job job{.begin_s = now, .end_s = length, .load = &load};
    if (comes) job.end_s = now + uniform(random, load.life_s[0], load.life_s[1]);
    if (load.new_watts_s > 0) job.end_s = now + load.new_watts_s * uniform(random, 0.5, 1.5);
    job.pattern = comes ? random() : pattern;
    job.workload = load.kernel >= 0 ? static_cast<std::size_t>(load.kernel)
                   : comes          ? random() % workloads_.size()
                                    : workload % workloads_.size();
    job.gain = std::exp(scenario_.data_gain * gauss(random));
    job.turns = static_cast<double>(turns);
    now = job.end_s + (comes ? uniform(random, load.away_s[0], load.away_s[1]) : 0);
    out.push_back(job);
  }
  return out;
}

Workload TenantWorld::make_work(const Slot& slot, const Job& job) const {
  const UnitWork units{.workload = &workloads_[job.workload],
                       .hidden = hidden_[job.workload],
                       .gain = job.gain,
                       .saturation = scenario_.saturation,
                       .watts = watts_,
                       .core_exponent = scenario_.core_exponent};
  Workload out{.name = units.workload->name, .chip = chip_.name};
  for (const Stretch& stretch : job.load         ? stretches_of(*job.load, job.turns, job.pattern)
                                : scenario_.fast ? near_the_sensors_rhythm(job.pattern)
                                                 : pattern(job.pattern)) {
    Phase phase = unit_phase(units, chip_, stretch.intensity, slot.share, slot.memory_share);
    phase.work = from_seconds(stretch.work_s * slot.share);
    phase.gap = from_seconds(stretch.gap_s);
    out.phases.push_back(std::move(phase));
  }
  return out;
}

// A context and not one kernel.
void TenantWorld::park(Slot& slot) {
  Workload work{.name = "parked", .chip = chip_.name};
  Phase phase;
  for (const Megahertz clock : chip_.sm_clocks) {
    OperatingPoint point;
    point.power = Watts(chip_.idle_power.at(clock));
    point.gpu_utilisation = point.memory_utilisation = Fraction(0);
    for (const auto& [name, member] : activity_shares()) point.activity.*member = Fraction(0);
    phase.points.push_back(point);
  }
  work.phases.push_back(std::move(phase));
  slot.running = gpu_->add(std::move(work), Duration::zero(), slot.instance);
  ++slot.process;
}

void TenantWorld::begin(Slot& slot, const Job& job) {
  slot.running = gpu_->add(make_work(slot, job), Duration::zero(), slot.instance);
  slot.reported.workload = workloads_[job.workload].name;
  const bool goes_on = job.load != nullptr && job.load->new_watts_s > 0;
  if ((scenario_.announced && !goes_on) || slot.process == 0) ++slot.process;
}

void TenantWorld::end(Slot& slot) {
  const SimJob* job = gpu_->tenant(*slot.running);
  slot.above_base += job->above_base;
  slot.alone += job->alone;
  gpu_->remove(*slot.running);
  slot.running.reset();
  slot.reported.workload.clear();
}

void TenantWorld::follow_plan(Slot& slot) {
  const double now = seconds(now_);
  if (slot.jobs.empty()) return;
  if (slot.running && slot.jobs[slot.next].end_s <= now) {
    end(slot);
    ++slot.next;
  }
  if (slot.running || slot.next >= slot.jobs.size()) return;
  if (slot.jobs[slot.next].begin_s <= now) begin(slot, slot.jobs[slot.next]);
}

Result<Tenancy> TenantWorld::tick() {
  for (Slot& slot : slots_) follow_plan(slot);
  if (scenario_.hides < 1) hide_counters();
  if (scenario_.clock[0] < 1) hold_clock();
  if (now_ >= length_ / 2) gpu_->set_board_extra(Watts(scenario_.base_step_watts));
  if (now_ == Duration::zero()) (void)device_->tenancy();  // its time begins here
  readings_.clear();
  for (int i = 0; i < 10; ++i) {
    // Turns begin within a second; all else goes by whole ones.
    for (std::size_t k = 0; i > 0 && k < scenario_.loads.size(); ++k)
      if (scenario_.loads[k].turn_s > 0) follow_plan(slots_[k]);
    now_ += std::chrono::milliseconds(100);
    clock_.advance(std::chrono::milliseconds(100));
    auto reading = device_->read({.energy = false, .activity = false, .processes = false});
    if (reading.ok()) readings_.push_back(*std::move(reading));
  }
  auto seen = device_->tenancy();
  if (seen.ok()) record_truth();
  return seen;
}

void TenantWorld::hold_clock() {
  if (now_ < clock_until_) return;
  const double part = uniform(clocks_, scenario_.clock[0], scenario_.clock[1]);
  clock_until_ = now_ + from_seconds(std::floor(uniform(clocks_, 5, 31)));
  gpu_->hold(Megahertz(part * chip_.sm_clocks.back().value()),
             clock_.now() + (clock_until_ - now_));
}

void TenantWorld::hide_counters() {
  const bool others = std::any_of(slots_.begin() + 1, slots_.end(),
                                  [](const Slot& slot) { return slot.running.has_value(); });
  device_->counter_errors.scale[*slots_[0].instance] = others ? scenario_.hides : 1;
}

void TenantWorld::record_truth() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    Joules above_base = slot.above_base, alone = slot.alone;
    if (slot.running) {
      above_base += gpu_->tenant(*slot.running)->above_base;
      alone += gpu_->tenant(*slot.running)->alone;
    }
    truth_[i] = {.key = slot.instance ? key_of_instance(*slot.instance) : key_of_slot(i),
                 .workload = slot.reported.workload,
                 .above_base = above_base - slot.reported.above_base,
                 .alone = alone - slot.reported.alone};
    slot.reported.above_base = above_base;
    slot.reported.alone = alone;
  }
}

std::string TenantWorld::key_of_instance(int id) const { return fmt::format("instance {}", id); }

std::string TenantWorld::key_of_slot(std::size_t at) const {
  return fmt::format("slot {} process {}", at, slots_[at].process);
}

std::string TenantWorld::key_of_process(std::int64_t pid) const {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].running && static_cast<std::int64_t>(*slots_[i].running) == -pid)
      return key_of_slot(i);
  return fmt::format("process {}", pid);
}

}  // namespace derate
