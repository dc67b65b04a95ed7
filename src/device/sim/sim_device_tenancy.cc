// Tenancy readings of SimDevice: its GPU's MIG instances and processes, with their activity and
// utilisation since the last reading.
#include <algorithm>
#include <cmath>
#include <utility>

#include "device/sim/sim_device.h"
#include "device/sim/sim_mig.h"

namespace derate {

// The mean of each counter since `before`, which becomes `now`; empty when no time has passed, and
// what was not known throughout.
Activity SimDevice::activity_since(const PartCounters& now, PartCounters& before, double scale) {
  Activity out;
  const PartCounters last = std::exchange(before, now);
  const double length = now.seconds - last.seconds;
  if (last.seconds <= 0 || length <= 0) return out;
  std::normal_distribution<double> gauss(0, 1);
  const auto shares = activity_shares();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double known = now.known[i] - last.known[i];
    if (known < length * 0.999) continue;
    const double busy = (now.busy[i] - last.busy[i]) / length;
    const double noise = 1 + counter_errors.noise * gauss(counter_random_);
    out.*shares[i].member = Fraction(std::max(0.0, busy * scale * noise));
  }
  return out;
}

std::vector<GpuInstance> SimDevice::read_instances() {
  std::vector<GpuInstance> out = gpu_.instances();
  if (!gpu_.chip().sensors.activity_window) return out;
  std::map<std::string, PartCounters> asked;
  for (GpuInstance& instance : out) {
    const auto scale = counter_errors.scale.find(instance.id);
    PartCounters& before = asked[instance.uuid] = asked_.instances[instance.uuid];
    instance.activity = activity_since(*gpu_.part_counters(instance.id), before,
                                       scale != counter_errors.scale.end() ? scale->second : 1);
  }
  asked_.instances = std::move(asked);
  return out;
}

// With MIG the driver tells nothing of single processes but where they are.
std::vector<GpuProcess> SimDevice::read_processes() {
  const SensorSpec& sensors = gpu_.chip().sensors;
  const std::optional<Instant> before = std::exchange(asked_.time, clock_.now());
  const double length = before ? seconds(clock_.now() - *before) : 0;
  std::normal_distribution<double> gauss(0, 1);
  const auto whole_percent = [&](double used) -> std::optional<Fraction> {
    if (length <= 0) return std::nullopt;
    double points = 100 * used / length;
    if (points > 0) points += sensors.utilisation.noise_points * gauss(counter_random_);
    return percent(std::clamp(std::round(points), 0.0, 100.0));
  };
  std::vector<GpuProcess> out;
  std::map<SimGpu::TenantId, Asked::Used> jobs;
  for (const SimGpu::TenantId id : gpu_.tenant_ids()) {
    const SimJob& job = *gpu_.tenant(id);
    GpuProcess process{.pid = -static_cast<std::int64_t>(id), .name = job.workload.name};
    process.gpu_instance = gpu_.instance_of(id);
    const Asked::Used last = asked_.jobs[id];
    const Asked::Used now = jobs[id] = {job.sm_seconds.value_or(0), job.memory_seconds.value_or(0)};
    if (!gpu_.mig() && job.sm_seconds) process.sm_utilisation = whole_percent(now.sm - last.sm);
    if (!gpu_.mig() && job.memory_seconds)
      process.memory_utilisation = whole_percent(now.memory - last.memory);
    out.push_back(std::move(process));
  }
  asked_.jobs = std::move(jobs);
  std::sort(out.begin(), out.end(),
            [](const GpuProcess& a, const GpuProcess& b) { return a.pid < b.pid; });
  return out;
}

Result<Tenancy> SimDevice::tenancy() {
  Tenancy out;
  // Board readings are as read()'s, but its window of the counters stays untouched.
  const std::int64_t window = last_activity_window_;
  auto board = read({.energy = true, .activity = false, .processes = false});
  last_activity_window_ = window;
  out.board = TRY(std::move(board));
  if (gpu_.chip().sensors.activity_window)
    out.board.activity = activity_since(gpu_.board_counters(), asked_.board, 1);
  out.mig = gpu_.mig();
  if (const auto profiles = mig_profiles(gpu_.chip()); gpu_.mig() && !profiles.empty()) {
    out.slices = profiles.back().slices;
    out.memory_slices = profiles.back().memory_slices;
    out.multiprocessors = profiles.back().multiprocessors;
  }
  out.instances = read_instances();
  out.processes = read_processes();
  out.board.tenants = static_cast<int>(out.processes.size());
  return out;
}

}  // namespace derate
