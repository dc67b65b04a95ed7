#include "device/sim/sim_device.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {

SimDevice::SimDevice(SimGpu& gpu, Clock& clock, int index, std::uint64_t seed)
    : gpu_(gpu),
      clock_(clock),
      capability_(sim_capability(gpu.chip(), index)),
      modes_(capability_.modes),
      random_(seed),
      counter_random_(seed ^ 0x7e4a47ULL) {}

void SimDevice::charge_as_h200(double times) {
  const auto costs = std::make_shared<DriverCosts>();
  for (const DriverCall call : {DriverCall::energy, DriverCall::activity, DriverCall::processes})
    costs->add(call, from_seconds(seconds(h200_cost(call)) * times));
  costs_ = costs;
}

void SimDevice::advance() {
  if (!started_) {
    offset_ = clock_.now() - gpu_.now();
    started_ = true;
  }
  gpu_.advance_to(clock_.now() - offset_);
}

Sample SimDevice::make_sample(const ReadPlan& plan) {
  const SimSensors::Shown shown = gpu_.sensors().shown();
  Sample sample;
  sample.time = clock_.now();
  sample.source = SampleSource::simulated;
  sample.gpu_utilisation = shown.gpu_utilisation;
  sample.memory_utilisation = shown.memory_utilisation;
  sample.sm_clock = gpu_.sm_clock();
  sample.memory_clock = gpu_.memory_clock();
  sample.power_usage = shown.power_usage;
  sample.power_instant = shown.power_instant;
  sample.power_average = shown.power_average;
  if (plan.energy && capability_.energy_counter) sample.energy = shown.energy;
  sample.temperature = gpu_.shown_temperature();
  sample.throttle_reasons = gpu_.throttle_reasons();
  sample.modes = modes_;
  // A second read within one window of the counter has nothing new to say.
  if (plan.activity && shown.activity_window != last_activity_window_) {
    last_activity_window_ = shown.activity_window;
    sample.activity = shown.activity;
  }
  return sample;
}

Result<Sample> SimDevice::read(const ReadPlan& plan) {
  advance();
  if (faults.gpu_lost) return Error{Errc::gpu_lost, capability_.id.uuid + ": the GPU is lost"};
  const SensorSpec& sensors = gpu_.chip().sensors;
  std::uniform_real_distribution<double> chance(0, 1);
  if (sensors.loss_probability > 0 && chance(random_) < sensors.loss_probability)
    return Error{Errc::query_failed, capability_.id.uuid + ": a reading was lost"};
  if (sensors.late_probability > 0 && last_ && chance(random_) < sensors.late_probability) {
    Sample late = *last_;
    if (!plan.energy) late.energy.reset();
    if (!plan.activity) late.activity = {};
    if (!plan.processes) late.tenants.reset();
    return late;
  }
  last_ = make_sample(plan);
  if (plan.processes) last_->tenants = static_cast<int>(TRY(processes()).size());
  return *last_;
}

Result<std::vector<GpuProcess>> SimDevice::processes() {
  advance();
  if (faults.gpu_lost) return Error{Errc::gpu_lost, capability_.id.uuid + ": the GPU is lost"};
  // A simulated job is no process of this machine: it has a name and no pid.
  std::vector<GpuProcess> out;
  const auto tenants = gpu_.tenant_ids();
  std::optional<Fraction> each = gpu_.sensors().gpu_utilisation();
  if (each) *each = *each / static_cast<double>(std::max<std::size_t>(1, tenants.size()));
  for (const SimGpu::TenantId id : tenants)
    out.push_back({0, gpu_.tenant(id)->workload.name, std::nullopt, each});
  return out;
}

Result<void> SimDevice::may_write() {
  advance();
  if (faults.gpu_lost) return Error{Errc::gpu_lost, capability_.id.uuid + ": the GPU is lost"};
  if (faults.no_permission)
    return Error{Errc::no_permission, capability_.id.uuid + ": setting clocks needs root"};
  return {};
}

Result<void> SimDevice::lock_sm_clock(Megahertz lowest, Megahertz highest) {
  TRY(may_write());
  const auto& clocks = capability_.sm_clocks;
  for (const Megahertz clock : {lowest, highest})
    if (!std::binary_search(clocks.begin(), clocks.end(), clock))
      return Error{Errc::invalid_argument, fmt::format("{:.0f} MHz is not a supported clock of {}",
                                                       clock.value(), capability_.id.name)};
  if (lowest > highest)
    return Error{Errc::invalid_argument,
                 fmt::format("lowest clock {:.0f} MHz above highest {:.0f} MHz", lowest.value(),
                             highest.value())};
  if (!faults.writes_ignored) gpu_.lock(lowest, highest);
  return {};
}

Result<void> SimDevice::reset_sm_clock() {
  TRY(may_write());
  if (!faults.writes_ignored) gpu_.unlock();
  return {};
}

Result<void> SimDevice::lock_memory_clock(Megahertz lowest, Megahertz highest) {
  TRY(may_write());
  const auto& clocks = capability_.memory_clocks;
  if (!capability_.memory_lock)
    return Error{Errc::not_supported, capability_.id.name + ": its memory clock cannot be locked"};
  for (const Megahertz clock : {lowest, highest})
    if (!std::binary_search(clocks.begin(), clocks.end(), clock))
      return Error{Errc::invalid_argument,
                   fmt::format("{:.0f} MHz is not a supported memory clock of {}", clock.value(),
                               capability_.id.name)};
  if (!faults.writes_ignored) gpu_.lock_memory(highest);
  return {};
}

Result<void> SimDevice::reset_memory_clock() {
  TRY(may_write());
  if (!capability_.memory_lock)
    return Error{Errc::not_supported, capability_.id.name + ": its memory clock cannot be locked"};
  if (!faults.writes_ignored) gpu_.unlock_memory();
  return {};
}

Result<void> SimDevice::set_power_limit(Watts limit) {
  TRY(may_write());
  if (!capability_.power_limits)
    return Error{Errc::not_supported,
                 capability_.id.name + ": its driver lets nobody set the power limit"};
  const PowerLimits& limits = *capability_.power_limits;
  if (!(limit >= limits.lowest && limit <= limits.highest))
    return Error{Errc::invalid_argument,
                 fmt::format("power limit {:.0f} W: {} takes {:.0f} to {:.0f} W", limit.value(),
                             capability_.id.name, limits.lowest.value(), limits.highest.value())};
  if (!faults.writes_ignored) gpu_.set_power_limit(limit);
  return {};
}

Result<GpuSettings> SimDevice::settings() {
  advance();
  if (faults.gpu_lost) return Error{Errc::gpu_lost, capability_.id.uuid + ": the GPU is lost"};
  GpuSettings settings;
  if (capability_.power_limits) settings.power_limit = gpu_.power_limit();
  return settings;
}

}  // namespace derate
