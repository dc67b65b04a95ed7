// The part of SimGpu that knows MIG: instances side by side, their counters and whose the power is.
#include <algorithm>
#include <cmath>
#include <utility>

#include "device/sim/sim_gpu.h"
#include "device/sim/sim_mig.h"
#include "model/shapley.h"

namespace derate {
namespace {

// Counters of instances are published at this pace (measured of a whole H200's, docs/sensors.md).
constexpr Duration kPublishEvery = std::chrono::milliseconds(100);

}  // namespace

void SimGpu::partition(std::vector<GpuInstance> instances) {
  tenants_.clear();
  parts_.clear();
  mig_ = true;
  instances_ = std::move(instances);
  const auto profiles = mig_profiles(chip_);
  for (const GpuInstance& instance : instances_)
    parts_.push_back(
        {.share = static_cast<double>(instance.multiprocessors) / profiles.back().multiprocessors});
  count_running();
  retarget();
}

void SimGpu::leave_mig() {
  tenants_.clear();
  parts_.clear();
  instances_.clear();
  mig_ = false;
  count_running();
  retarget();
}

const PartCounters* SimGpu::part_counters(int instance) const {
  for (std::size_t i = 0; i < instances_.size(); ++i)
    if (instances_[i].id == instance) return &parts_[i].shown;
  return nullptr;
}

std::optional<int> SimGpu::instance_of(TenantId id) const {
  const Tenant* tenant = find(id);
  if (tenant == nullptr || !tenant->part) return std::nullopt;
  return instances_[*tenant->part].id;
}

std::vector<SimGpu::TenantId> SimGpu::tenant_ids() const {
  std::vector<TenantId> out;
  for (const Tenant& tenant : tenants_)
    if (tenant.running()) out.push_back(tenant.id);
  return out;
}

// How many work in each part.
std::vector<double> SimGpu::workers() const {
  std::vector<double> out(parts_.size(), 0);
  for (const Tenant& tenant : tenants_)
    if (tenant.part && tenant.working()) ++out[*tenant.part];
  return out;
}

// Dynamic watts that each part would draw with the board to itself, at that clock.
std::vector<double> SimGpu::alone(std::size_t clock) const {
  const std::vector<double> working = workers();
  std::vector<double> out(parts_.size(), 0);
  for (const Tenant& tenant : tenants_) {
    if (!tenant.part || !tenant.working()) continue;
    const std::size_t part = *tenant.part;
    const Watts whole = power_of(tenant, clock) - idle_[clock].power - leakage_at(clock);
    out[part] += std::max(0.0, whole.value()) * parts_[part].share / working[part];
  }
  return out;
}

Watts SimGpu::power_of_parts(std::size_t clock) const {
  double sum = 0;
  for (const double watts : alone(clock)) sum += watts;
  return idle_[clock].power + leakage_at(clock) + Watts(together(shared_, sum));
}

// What the parts of the set bits would draw without the others, whose clock the regulator would
// then leave higher.
double SimGpu::coalition(unsigned mask, std::size_t highest) const {
  const auto dynamic_at = [&](std::size_t clock) {
    double sum = 0;
    const std::vector<double> each = alone(clock);
    for (std::size_t i = 0; i < each.size(); ++i)
      if ((mask >> i & 1U) != 0) sum += each[i];
    return together(shared_, sum);
  };
  const auto fits = [&](std::size_t clock) {
    return idle_[clock].power + leakage_at(clock) + board_extra_ + Watts(dynamic_at(clock)) <=
           power_limit_;
  };
  std::size_t low = clock_, high = highest;  // the highest clock that fits lies here
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    (fits(middle) ? low : high) = fits(middle) ? middle : middle - 1;
  }
  return dynamic_at(low);
}

void SimGpu::mix_parts(std::size_t clock) {
  mixed_ = idle_[clock];
  mixed_.gpu_utilisation.reset();  // with MIG the driver tells no utilisation
  mixed_.memory_utilisation.reset();
  const std::vector<double> working = workers();
  for (const auto& [name, member] : activity_shares()) {
    double sum = 0;
    bool known = true;
    for (const Tenant& tenant : tenants_) {
      if (!tenant.part || !tenant.working()) continue;
      const auto& share = point_of(tenant, clock).activity.*member;
      known = known && share.has_value();
      if (share) sum += share->value() * parts_[*tenant.part].share / working[*tenant.part];
    }
    mixed_.activity.*member = known ? std::optional(Fraction(sum)) : std::nullopt;
  }
}

namespace {

void count(PartCounters& counters, const Activity& activity, double seconds) {
  const auto shares = activity_shares();
  for (std::size_t i = 0; i < shares.size(); ++i)
    if (const auto& share = activity.*shares[i].member) {
      counters.busy[i] += share->value() * seconds;
      counters.known[i] += seconds;
    }
}

}  // namespace

void SimGpu::count_parts() {
  const std::vector<double> working = workers();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    PartCounters& now = parts_[i].now;
    now.seconds += step_s_;
    if (working[i] == 0)
      for (double& known : now.known) known += step_s_;
  }
  for (const Tenant& tenant : tenants_)
    if (tenant.part && tenant.working())
      count(parts_[*tenant.part].now, point_of(tenant, clock_).activity,
            step_s_ / working[*tenant.part]);
}

// `point` is what the whole GPU does.
void SimGpu::publish_counters(const OperatingPoint& point) {
  board_.now.seconds += step_s_;
  count(board_.now, point.activity, step_s_);
  if (mig_) count_parts();
  const auto every = std::max<std::int64_t>(1, kPublishEvery / options_.step);
  if (++counter_steps_ % every != 0) return;
  board_.shown = board_.now;
  for (Part& part : parts_) part.shown = part.now;
}

void SimGpu::work_parts() {
  const std::vector<double> working = workers(), each = alone(clock_);
  double sum = 0;
  for (const double watts : each) sum += watts;
  const Watts idle = idle_[clock_].power;
  const double dynamic = (power_ - board_extra_ - idle - leakage_at(clock_)).value();
  const bool capped = (throttle_ & throttle::kSwPowerCap) != 0;
  std::vector<double> own = shapley(parts_.size(), [&](unsigned mask) {
    if (capped) return coalition(mask, std::min(granted_, thermal_cap_));
    double watts = 0;
    for (std::size_t i = 0; i < each.size(); ++i)
      if ((mask >> i & 1U) != 0) watts += each[i];
    return together(shared_, watts);
  });
  // At the limit the regulator goes to and fro between two clocks: what it draws now is shared.
  double all = 0;
  for (const double watts : own) all += watts;
  for (double& watts : own) watts *= all > 0 ? dynamic / all : 0;

  const auto residents = static_cast<double>(running_);
  for (Tenant& tenant : tenants_) {
    if (!tenant.running()) continue;
    Draw draw{.power = idle / residents, .above_base = context_step(clock_) / residents};
    if (tenant.part && tenant.working()) {
      const std::size_t part = *tenant.part;
      draw.slice = 1 / working[part];
      draw.rate = point_of(tenant, clock_).rate * parts_[part].share * draw.slice;
      draw.alone = Watts(each[part] * draw.slice);
      draw.power += Watts(own[part] * draw.slice);
      draw.above_base += Watts(own[part] * draw.slice);
    }
    work(tenant, draw);
  }
}

}  // namespace derate
