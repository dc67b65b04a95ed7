// MIG in SimGpu: instances that share the GPU, their counters, and the division of the power among
// them.
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
  mig_.parts.clear();
  mig_.on = true;
  mig_.instances = std::move(instances);
  const auto profiles = mig_profiles(chip_);
  for (const GpuInstance& instance : mig_.instances)
    mig_.parts.push_back(
        {.share = static_cast<double>(instance.multiprocessors) / profiles.back().multiprocessors});
  count_running();
  retarget();
}

void SimGpu::leave_mig() {
  tenants_.clear();
  mig_.parts.clear();
  mig_.instances.clear();
  mig_.on = false;
  count_running();
  retarget();
}

const PartCounters* SimGpu::part_counters(int instance) const {
  for (std::size_t i = 0; i < mig_.instances.size(); ++i)
    if (mig_.instances[i].id == instance) return &mig_.parts[i].shown;
  return nullptr;
}

std::optional<int> SimGpu::instance_of(TenantId id) const {
  const Tenant* tenant = find(id);
  if (tenant == nullptr || !tenant->part) return std::nullopt;
  return mig_.instances[*tenant->part].id;
}

std::vector<SimGpu::TenantId> SimGpu::tenant_ids() const {
  std::vector<TenantId> out;
  for (const Tenant& tenant : tenants_)
    if (tenant.running()) out.push_back(tenant.id);
  return out;
}

// How many work in each part.
std::vector<double> SimGpu::workers() const {
  std::vector<double> out(mig_.parts.size(), 0);
  for (const Tenant& tenant : tenants_)
    if (tenant.part && tenant.working()) ++out[*tenant.part];
  return out;
}

// Dynamic watts that each part would draw with the board to itself, at that clock.
std::vector<double> SimGpu::alone(std::size_t clock) const {
  const std::vector<double> working = workers();
  std::vector<double> out(mig_.parts.size(), 0);
  for (const Tenant& tenant : tenants_) {
    if (!tenant.part || !tenant.working()) continue;
    const std::size_t part = *tenant.part;
    const Watts whole = power_of(tenant, clock) - idle_[clock].power - leakage_at(clock);
    out[part] += std::max(0.0, whole.value()) * mig_.parts[part].share / working[part];
  }
  return out;
}

Watts SimGpu::power_of_parts(std::size_t clock) const {
  double sum = 0;
  for (const double watts : alone(clock)) sum += watts;
  return idle_[clock].power + leakage_at(clock) + Watts(together(sharing_.shared, sum));
}

// What the parts of the set bits would draw without the others, whose clock the regulator would
// then leave higher.
double SimGpu::coalition(unsigned mask, std::size_t highest) const {
  const auto dynamic_at = [&](std::size_t clock) {
    double sum = 0;
    const std::vector<double> each = alone(clock);
    for (std::size_t i = 0; i < each.size(); ++i)
      if ((mask >> i & 1U) != 0) sum += each[i];
    return together(sharing_.shared, sum);
  };
  const auto fits = [&](std::size_t clock) {
    return idle_[clock].power + leakage_at(clock) + sharing_.board_extra +
               Watts(dynamic_at(clock)) <=
           regulator_.limit;
  };
  std::size_t low = regulator_.clock, high = highest;  // the highest clock that fits lies here
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
      if (share) sum += share->value() * mig_.parts[*tenant.part].share / working[*tenant.part];
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
  for (std::size_t i = 0; i < mig_.parts.size(); ++i) {
    PartCounters& now = mig_.parts[i].now;
    now.seconds += step_s_;
    if (working[i] == 0)
      for (double& known : now.known) known += step_s_;
  }
  for (const Tenant& tenant : tenants_)
    if (tenant.part && tenant.working())
      count(mig_.parts[*tenant.part].now, point_of(tenant, regulator_.clock).activity,
            step_s_ / working[*tenant.part]);
}

// `point` is what the whole GPU does.
void SimGpu::publish_counters(const OperatingPoint& point) {
  board_.now.seconds += step_s_;
  count(board_.now, point.activity, step_s_);
  if (mig_.on) count_parts();
  const auto every = std::max<std::int64_t>(1, kPublishEvery / options_.step);
  if (++counter_steps_ % every != 0) return;
  board_.shown = board_.now;
  for (Part& part : mig_.parts) part.shown = part.now;
}

void SimGpu::work_parts() {
  const std::vector<double> working = workers(), each = alone(regulator_.clock);
  const Watts idle = idle_[regulator_.clock].power;
  const double dynamic =
      (truth_.power - sharing_.board_extra - idle - leakage_at(regulator_.clock)).value();
  const bool capped = (regulator_.throttle & throttle::kSwPowerCap) != 0;
  std::vector<double> own = shapley(mig_.parts.size(), [&](unsigned mask) {
    if (capped) return coalition(mask, std::min(switch_.granted, regulator_.thermal_cap));
    double watts = 0;
    for (std::size_t i = 0; i < each.size(); ++i)
      if ((mask >> i & 1U) != 0) watts += each[i];
    return together(sharing_.shared, watts);
  });
  // At the limit the regulator goes to and fro between two clocks: what it draws now is shared.
  double all = 0;
  for (const double watts : own) all += watts;
  for (double& watts : own) watts *= all > 0 ? dynamic / all : 0;

  const auto residents = static_cast<double>(running_);
  for (Tenant& tenant : tenants_) {
    if (!tenant.running()) continue;
    Draw draw{.power = idle / residents, .above_base = context_step(regulator_.clock) / residents};
    if (tenant.part && tenant.working()) {
      const std::size_t part = *tenant.part;
      draw.slice = 1 / working[part];
      draw.rate = point_of(tenant, regulator_.clock).rate * mig_.parts[part].share * draw.slice;
      draw.alone = Watts(each[part] * draw.slice);
      draw.power += Watts(own[part] * draw.slice);
      draw.above_base += Watts(own[part] * draw.slice);
    }
    work(tenant, draw);
  }
}

}  // namespace derate
