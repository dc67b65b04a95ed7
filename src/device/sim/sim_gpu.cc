#include "device/sim/sim_gpu.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

// Leakage follows a temperature that moves in tens of seconds, and readings are renewed each 0.1 s.
constexpr Duration kHeatEvery = std::chrono::milliseconds(100);

double lognormal_seconds(const LatencySpec& spec, double gauss) {
  if (spec.p99 <= spec.median) return seconds(spec.median);
  constexpr double kZ99 = 2.3263;  // 99th percentile of the standard normal
  const double sigma = std::log(seconds(spec.p99) / seconds(spec.median)) / kZ99;
  return seconds(spec.median) * std::exp(sigma * gauss);
}

}  // namespace

SimGpu::SimGpu(const SimChip& chip, const SimOptions& options)
    : chip_(chip),
      options_(options),
      sensors_(chip.sensors, options.step, options.seed ^ 0x9e3779b97f4a7c15ULL),
      random_(options.seed),
      step_s_(seconds(options.step)),
      regulator_{.limit = chip.power_limits.factory, .thermal_cap = chip.sm_clocks.size() - 1},
      heat_{.ambient = chip.thermal.ambient.value(),
            .temperature = chip.thermal.ambient.value(),
            .decay = std::exp(-seconds(options.step) / seconds(chip.thermal.time_constant))} {
  const double gain = 1 + options.voltage_spread * gauss_(random_);
  voltage_gain2_ = gain * gain;
  for (const Megahertz clock : chip.sm_clocks) {
    OperatingPoint point;
    point.power = Watts(chip.idle_power.at(clock));
    point.gpu_utilisation = point.memory_utilisation = Fraction(0);
    if (chip.sensors.activity_window)
      for (auto share : {&Activity::graphics, &Activity::sm, &Activity::dram})
        point.activity.*share = Fraction(0);
    idle_.push_back(point);
    voltage_.push_back(chip.voltage.at(clock));
  }
  switch_.asked = switch_.granted = regulator_.clock = index_of(chip.unused_clock);
  memory_.asked = memory_.granted = wanted_memory();
  truth_.power = power_at(regulator_.clock);
  heat_.temperature += chip.thermal.kelvin_per_watt * truth_.power.value();
  heat_.shown = std::round(heat_.temperature);
  sensors_.begin_in(idle_[regulator_.clock], truth_.power);
}

std::size_t SimGpu::index_of(Megahertz clock) const {
  const auto& clocks = chip_.sm_clocks;
  const auto at = std::lower_bound(clocks.begin(), clocks.end(), clock);
  return at == clocks.end() ? clocks.size() - 1 : static_cast<std::size_t>(at - clocks.begin());
}

// Work boosts to the top of what is allowed; without a context the GPU falls to the bottom.
std::size_t SimGpu::wanted_clock() const {
  if (switch_.hold) return switch_.hold->clock;
  const std::size_t highest = switch_.application.value_or(chip_.sm_clocks.size() - 1);
  const std::size_t top = switch_.highest.value_or(highest);
  const std::size_t bottom = switch_.lowest.value_or(index_of(chip_.unused_clock));
  return busy() ? top : bottom;
}

// Without a context the memory falls to its lowest clock, where that saves anything.
std::size_t SimGpu::wanted_memory() const {
  if (memory_.lock) return *memory_.lock;
  const auto& saves = chip_.memory_saves;
  return !busy() && !saves.empty() && saves.back() > Watts(0) ? saves.size() : 0;
}

void SimGpu::lock_memory(Megahertz highest) {
  const auto& lower = chip_.lower_memory_clocks;
  std::size_t place = 0;
  while (place < lower.size() &&
         (place == 0 ? chip_.memory_clock : lower[place - 1].clock) > highest)
    ++place;
  memory_.lock = place;
  retarget();
}

void SimGpu::unlock_memory() {
  memory_.lock.reset();
  retarget();
}

Megahertz SimGpu::memory_clock() const {
  return memory_.granted == 0 ? chip_.memory_clock
                              : chip_.lower_memory_clocks[memory_.granted - 1].clock;
}

std::size_t SimGpu::highest_with_memory(std::size_t clock) const {
  const auto& listed = chip_.lower_memory_clocks[memory_.granted - 1].sm_clocks;
  return listed.empty() ? clock : std::min(clock, index_of(listed.back()));
}

// Of its rate with the highest memory clock.
double SimGpu::memory_rate(const OperatingPoint& point) const {
  if (memory_.granted == 0) return 1;
  const double used = point.memory_utilisation.value_or(Fraction(1)).value();
  return 1 / (1 + used * (chip_.memory_clock / memory_clock() - 1));
}

Watts SimGpu::power_at(std::size_t clock) const {
  const Watts all = power_of_work(clock) + sharing_.board_extra;
  return memory_.granted == 0 ? all
                              : std::max(Watts(0), all - chip_.memory_saves[memory_.granted - 1]);
}

void SimGpu::retarget() {
  if (const std::size_t memory = wanted_memory(); memory != memory_.asked) {
    memory_.asked = memory;
    memory_.at = now_ + from_seconds(lognormal_seconds(chip_.latency, gauss_(random_)));
  }
  const std::size_t wanted = wanted_clock();
  if (wanted == switch_.asked) return;
  switch_.asked = wanted;
  if (chip_.latency.rise > Duration::zero()) {
    rise_to(wanted);
    if (wanted >= switch_.granted) return;
  }
  switch_.at = now_ + from_seconds(lognormal_seconds(chip_.latency, gauss_(random_)));
  switch_.pending = true;
}

// A clock that is at most what has been requested all the while since some moment counts from
// there: so that a request which lowers a rise that is under way does not put it off.
void SimGpu::rise_to(std::size_t wanted) {
  Instant at = now_ + chip_.latency.rise;
  switch_.pending = false;
  for (auto& rises = switch_.rises; !rises.empty() && rises.back().clock >= wanted;) {
    at = rises.back().at;
    rises.pop_back();
  }
  if (wanted > switch_.granted) switch_.rises.push_back({wanted, at});
}

void SimGpu::hold(Megahertz clock, Instant until) {
  switch_.hold = Hold{index_of(clock), until};
  retarget();
}

void SimGpu::lock(Megahertz lowest, Megahertz highest) {
  switch_.lowest = index_of(lowest);
  switch_.highest = index_of(highest);
  retarget();
}

void SimGpu::unlock() {
  switch_.lowest.reset();
  switch_.highest.reset();
  retarget();
}

void SimGpu::set_application_clock(std::optional<Megahertz> highest) {
  switch_.application.reset();
  if (highest) switch_.application = index_of(*highest);
  retarget();
}

void SimGpu::count_running() {
  running_ = 0;
  only_ = nullptr;
  for (Tenant& tenant : tenants_)
    if (tenant.running()) {
      ++running_;
      only_ = &tenant;
    }
  if (running_ != 1 || mig_.on) only_ = nullptr;
}

void SimGpu::start(Workload workload, Duration work) {
  tenants_.clear();
  add(std::move(workload), work);
}

SimGpu::TenantId SimGpu::add(Workload workload, Duration work, std::optional<int> instance,
                             const MakeSimWork& make) {
  Tenant& tenant = tenants_.emplace_back(Tenant{.id = ++last_id_});
  for (std::size_t i = 0; instance && i < mig_.instances.size(); ++i)
    if (mig_.instances[i].id == *instance) tenant.part = i;
  tenant.job = {
      .workload = std::move(workload), .work = work, .started = now_, .energy_at_start = energy()};
  tenant.work = make(tenant.job.workload);
  count_running();
  retarget();
  return last_id_;
}

void SimGpu::remove(TenantId id) {
  std::erase_if(tenants_, [&](const Tenant& tenant) { return tenant.id == id; });
  count_running();
  retarget();
}

SimGpu::Tenant* SimGpu::find(TenantId id) {
  return const_cast<Tenant*>(std::as_const(*this).find(id));
}

const SimGpu::Tenant* SimGpu::find(TenantId id) const {
  for (const Tenant& tenant : tenants_)
    if (tenant.id == id) return &tenant;
  return nullptr;
}

bool SimGpu::waits(TenantId id) const {
  const Tenant* tenant = find(id);
  return tenant != nullptr && tenant->running() && tenant->work->waits_for_others();
}

void SimGpu::go_on(TenantId id) {
  if (Tenant* tenant = find(id)) tenant->work->go_on();
}

const SimJob* SimGpu::tenant(TenantId id) const {
  const Tenant* tenant = find(id);
  return tenant != nullptr ? &tenant->job : nullptr;
}

void SimGpu::finish(Tenant& tenant, Instant when, Joules energy) {
  tenant.job.finished = when;
  tenant.job.energy_at_finish = energy;
  count_running();
}

void SimGpu::stop() {
  for (Tenant& tenant : tenants_)
    if (tenant.running()) finish(tenant, now_, energy());
  retarget();
}

void SimGpu::advance_to(Instant now) {
  while (now_ + options_.step <= now) step();
}

void SimGpu::apply_pending() {
  if (memory_.asked != memory_.granted && now_ >= memory_.at) memory_.granted = memory_.asked;
  if (switch_.hold && now_ >= switch_.hold->until) {
    switch_.hold.reset();
    retarget();
  }
  for (auto& rises = switch_.rises; !rises.empty() && rises.front().at <= now_;) {
    switch_.granted = rises.front().clock;
    rises.erase(rises.begin());
  }
  if (!switch_.pending || now_ < switch_.at) return;
  switch_.granted = switch_.asked;
  switch_.pending = false;
}

const OperatingPoint& SimGpu::point_of(const Tenant& tenant, std::size_t clock) const {
  return tenant.working() ? tenant.work->at(clock) : idle_[clock];
}

// What the sensors see of the GPU in this step.
const OperatingPoint& SimGpu::point_at(std::size_t clock) {
  if (!busy()) return idle_[clock];
  if (only_ != nullptr) return point_of(*only_, clock);
  mix(clock);
  return mixed_;
}

Watts SimGpu::power_of(const Tenant& tenant, std::size_t clock) const {
  const Watts tabled = point_of(tenant, clock).power;
  const std::optional<double> drift = tenant.work->drift();
  if (!drift) return tabled;
  const Watts idle = idle_[clock].power;
  return idle + (tabled - idle) * (voltage_gain2_ * *drift) + leakage_at(clock);
}

Watts SimGpu::power_of_work(std::size_t clock) const {
  if (!busy()) return idle_[clock].power;
  if (only_ != nullptr) return power_of(*only_, clock);
  if (mig_.on) return power_of_parts(clock);
  const Watts idle = idle_[clock].power;
  Watts sum{};
  double working = 0;
  for (const Tenant& tenant : tenants_)
    if (tenant.working()) {
      sum += power_of(tenant, clock) - idle - leakage_at(clock);
      ++working;
    }
  return working > 0 ? idle + leakage_at(clock) + sum * slice_of(working) : idle;
}

namespace {

// A sum in which one unknown makes the whole unknown.
void add_share(std::optional<Fraction>& sum, std::optional<Fraction> one, double weight) {
  if (!sum || !one)
    sum.reset();
  else
    *sum += *one * weight;
}

void add_point(OperatingPoint& sum, const OperatingPoint& one, double weight) {
  add_share(sum.gpu_utilisation, one.gpu_utilisation, weight);
  add_share(sum.memory_utilisation, one.memory_utilisation, weight);
  for (const auto& [name, share] : activity_shares())
    add_share(sum.activity.*share, one.activity.*share, weight);
}

OperatingPoint nothing_running() {
  OperatingPoint point;
  point.gpu_utilisation = point.memory_utilisation = Fraction(0);
  for (const auto& [name, share] : activity_shares()) point.activity.*share = Fraction(0);
  return point;
}

}  // namespace

void SimGpu::mix(std::size_t clock) {
  if (mig_.on) return mix_parts(clock);
  const auto working = std::count_if(tenants_.begin(), tenants_.end(),
                                     [](const Tenant& tenant) { return tenant.working(); });
  if (working == 0) {
    mixed_ = idle_[clock];
    return;
  }
  mixed_ = nothing_running();
  for (const Tenant& tenant : tenants_)
    if (tenant.working())
      add_point(mixed_, point_of(tenant, clock), slice_of(static_cast<double>(working)));
}

// The regulator: the highest clock whose power fits, and now and then the next one up, so that the
// mean meets the limit (a real H200 holds 598.3 W of 600).
void SimGpu::regulate(std::size_t wanted) {
  regulator_.throttle = busy() ? 0 : throttle::kGpuIdle;
  if (busy() && switch_.application && !switch_.highest && wanted == *switch_.application)
    regulator_.throttle |= throttle::kApplicationsClocksSetting;
  if (memory_.granted != 0) wanted = highest_with_memory(wanted);
  std::size_t clock = wanted;
  const Watts limit = regulator_.limit;
  truth_.power = power_at(wanted);
  if (truth_.power > limit || regulator_.over_limit > 0) {
    while (clock > 0 && power_at(clock) > limit) --clock;
    if (clock < wanted && regulator_.over_limit < 0) ++clock;
    regulator_.over_limit =
        std::clamp(regulator_.over_limit + (power_at(clock) - limit).value() * step_s_, -1.0, 1.0);
    if (clock < wanted) regulator_.throttle |= throttle::kSwPowerCap;
  }
  if (clock > regulator_.thermal_cap) {
    clock = regulator_.thermal_cap;
    regulator_.throttle |= throttle::kHwThermalSlowdown;
  }
  if (clock != wanted) truth_.power = power_at(clock);
  regulator_.clock = clock;
}

void SimGpu::heat() {
  const ThermalSpec& thermal = chip_.thermal;
  const double settled = heat_.ambient + thermal.kelvin_per_watt * truth_.power.value();
  heat_.temperature = settled + (heat_.temperature - settled) * heat_.decay;
  if (heat_.due_in-- > 0) return;
  heat_.due_in = std::max(1, static_cast<int>(kHeatEvery / options_.step)) - 1;
  heat_.shown = std::round(heat_.temperature);
  const double above = heat_.temperature - thermal.reference.value();
  heat_.leakage = thermal.leakage.value() * (std::exp(thermal.leakage_per_kelvin * above) - 1);
  if (heat_.temperature > thermal.slowdown.value())
    regulator_.thermal_cap -= regulator_.thermal_cap > 0 ? 1 : 0;
  else if (regulator_.thermal_cap + 1 < chip_.sm_clocks.size() &&
           heat_.temperature < thermal.slowdown.value() - 2)
    ++regulator_.thermal_cap;
}

Watts SimGpu::context_step(std::size_t clock) const {
  Watts unused = Watts(chip_.idle_power.at(chip_.unused_clock));
  if (!chip_.memory_saves.empty()) unused -= chip_.memory_saves.back();
  return std::max(Watts(0), idle_[clock].power - unused);
}

// `share` of the step was the tenant's.
void SimGpu::account(Tenant& tenant, const Draw& draw, double share) const {
  SimJob& job = tenant.job;
  const double length = step_s_ * share;
  job.energy += Joules(draw.power.value() * length);
  job.above_base += Joules(draw.above_base.value() * length);
  job.alone += Joules(draw.alone.value() * length);
  if (!tenant.working()) return;
  const OperatingPoint& point = point_of(tenant, regulator_.clock);
  if (chip_.sensors.process_sample) {
    const auto used = [&](const std::optional<Fraction>& of) {
      return of ? of->value() * draw.slice * length : 0;
    };
    tenant.sampled_sm += used(point.gpu_utilisation);
    tenant.sampled_memory += used(point.memory_utilisation);
    return;
  }
  const auto count = [&](std::optional<double>& sum, const std::optional<Fraction>& used) {
    if (sum && used)
      *sum += used->value() * draw.slice * length;
    else
      sum.reset();
  };
  count(job.sm_seconds, point.gpu_utilisation);
  count(job.memory_seconds, point.memory_utilisation);
}

// Of the GPU's time, for each of those that work.
double SimGpu::slice_of(double working) const {
  return std::min(1.0, (1 + sharing_.overlap * (working - 1)) / working);
}

// The driver's sample ends: all that was done in it counts as one process's.
void SimGpu::credit_sample() {
  sample_.ends += *chip_.sensors.process_sample;
  double sm = 0, memory = 0;
  for (const Tenant& tenant : tenants_) sm += tenant.sampled_sm, memory += tenant.sampled_memory;
  const double drift = chip_.sensors.process_drift;
  sample_.phase +=
      drift < 1 ? drift * gauss_(random_) : std::uniform_real_distribution<double>(0, 1)(random_);
  sample_.phase -= std::floor(sample_.phase);
  double before = sample_.phase * sm;
  SimJob* met = nullptr;
  for (Tenant& tenant : tenants_) {
    if (before >= 0 && tenant.sampled_sm > 0) met = &tenant.job;
    before -= std::exchange(tenant.sampled_sm, 0);
    tenant.sampled_memory = 0;
  }
  if (met == nullptr) return;
  const double length = seconds(*chip_.sensors.process_sample);
  sm = std::min(sm, length), memory = std::min(memory, length);
  if (met->sm_seconds) *met->sm_seconds += sm;
  if (met->memory_seconds) *met->memory_seconds += memory;
}

void SimGpu::work(Tenant& tenant, const Draw& draw) {
  SimJob& job = tenant.job;
  if (!tenant.work->working()) {
    account(tenant, draw, 1);
    tenant.work->wait(step_s_);
    return;
  }
  double done = draw.rate * memory_rate(point_of(tenant, regulator_.clock)) * step_s_, share = 1;
  const double total = seconds(job.work);
  const bool ends = total > 0 && job.done + done >= total - kWorkResidue;
  if (ends) {
    // The job ends inside this step: its time and energy are cut there.
    share = (total - job.done) / done;
    done = total - job.done;
  }
  account(tenant, draw, share);
  if (ends)
    finish(tenant, now_ + from_seconds(step_s_ * share),
           Joules(truth_.joules + truth_.power.value() * step_s_ * share));
  job.done += done;
  truth_.work_done += done;
  tenant.work->work(done, step_s_);
}

void SimGpu::work() {
  if (mig_.on) return work_parts();
  const Watts idle = idle_[regulator_.clock].power, step = context_step(regulator_.clock);
  if (only_ != nullptr) {
    const Watts own = truth_.power - sharing_.board_extra;
    const Watts dynamic = only_->working() ? own - idle - leakage_at(regulator_.clock) : Watts(0);
    work(*only_, {point_of(*only_, regulator_.clock).rate, own, dynamic + step, dynamic, 1});
    return;
  }
  const auto working = static_cast<double>(
      std::count_if(tenants_.begin(), tenants_.end(), [](const Tenant& t) { return t.working(); }));
  const auto residents = static_cast<double>(running_);
  for (Tenant& tenant : tenants_) {
    if (!tenant.running()) continue;
    Draw draw{.power = idle / residents, .above_base = step / residents};
    draw.slice = slice_of(std::max(1.0, working));
    draw.rate = point_of(tenant, regulator_.clock).rate * draw.slice;
    if (tenant.working()) {
      draw.alone =
          (power_of(tenant, regulator_.clock) - idle - leakage_at(regulator_.clock)) * draw.slice;
      draw.power += draw.alone + leakage_at(regulator_.clock) / working;
      draw.above_base += draw.alone;
    }
    work(tenant, draw);
  }
}

void SimGpu::step() {
  apply_pending();
  regulate(switch_.granted);
  const OperatingPoint& point = point_at(regulator_.clock);
  const bool was_busy = busy();
  sensors_.step(point, truth_.power);
  if (chip_.sensors.activity_window) publish_counters(point);
  if (was_busy) work();
  truth_.joules += truth_.power.value() * step_s_;
  heat();
  now_ += options_.step;
  if (chip_.sensors.process_sample && now_ >= sample_.ends) credit_sample();
  if (was_busy && !busy()) retarget();
}

}  // namespace derate
