#include "device/nvml/nvml_tenants.h"

#include <algorithm>
#include <vector>

namespace derate {

namespace {

// The board's own activity without MIG: no method of the service uses it, recordings keep it.
constexpr std::chrono::seconds kBoardEvery(10);

}  // namespace

NvmlTenants::NvmlTenants(const NvmlLibrary& library, nvml::Device device, bool mig,
                         std::shared_ptr<DriverCosts> costs)
    : library_(library), device_(device), mig_(mig), costs_(std::move(costs)) {
  auto gpm = Gpm::create(library, device, {.zeros_after = kGpmSureWindow});
  if (gpm.ok()) board_ = *std::move(gpm);
}

Result<Tenancy> NvmlTenants::read(Instant now, WallTime wall) {
  Tenancy out;
  out.mig = mig_;
  if (mig_) {
    TRY(find_instances(now));
    out.processes = TRY(read_processes());
    if (const std::set<int> unknown = strangers(out.processes); unknown != strangers_) {
      TRY(rescan(now));
      strangers_ = strangers(out.processes);
    }
    out.instances = topology_->instances;
    out.slices = profiles_->slices;
    out.memory_slices = profiles_->memory_slices;
    out.multiprocessors = profiles_->multiprocessors;
  } else {
    out.processes = TRY(read_used_processes(now, wall));
  }
  out.board.activity = TRY(read_board(now));
  for (GpuInstance& instance : out.instances) instance.activity = TRY(read_instance(instance, now));
  return out;
}

void NvmlTenants::look_around(Instant now) {
  if (!mig_ || !topology_ || (!doubted_ && now - scanned_ < kMigRescan)) return;
  if (!rescan(now).ok()) topology_.reset();
}

Result<void> NvmlTenants::find_instances(Instant now) {
  if (topology_ && still_there(library_, *topology_)) return {};
  return rescan(now);
}

Result<void> NvmlTenants::rescan(Instant now) {
  if (!profiles_) profiles_ = TRY(read_mig_profiles(library_, device_));
  topology_ = TRY(read_mig_topology(library_, device_, *profiles_));
  scanned_ = now;
  doubted_ = false;
  // Those that are gone give their buffers back; one that has come since begins anew.
  std::map<std::pair<int, std::string>, Counters> kept;
  for (const GpuInstance& instance : topology_->instances) {
    const std::pair key(instance.id, instance.uuid);
    if (const auto known = counters_.find(key); known != counters_.end()) {
      kept[key] = std::move(known->second);
      continue;
    }
    auto gpm = Gpm::create(
        library_, device_,
        {.gpu_instance = static_cast<unsigned int>(instance.id), .zeros_after = kGpmSureWindow});
    kept[key].gpm = gpm.ok() ? *std::move(gpm) : nullptr;
  }
  counters_ = std::move(kept);
  return {};
}

// The list of the whole GPU is for the privileged; each instance has one of its own.
Result<std::vector<GpuProcess>> NvmlTenants::read_processes() const {
  const ProcessPlace whole[] = {{device_, std::nullopt}};
  auto processes = list_processes_by_instance(library_, whole);
  if (processes.ok() || processes.error().code == Errc::gpu_lost) return processes;
  const Error error = processes.error();
  std::vector<ProcessPlace> places;
  for (const MigDevice& device : topology_->devices)
    places.push_back({device.handle, device.gpu_instance});
  if (!places.empty()) processes = list_processes_by_instance(library_, places);
  if (!places.empty() && processes.ok()) return processes;
  if (error.code == Errc::not_supported) return std::vector<GpuProcess>();
  return error;
}

Result<std::vector<GpuProcess>> NvmlTenants::read_used_processes(Instant now, WallTime wall) {
  auto processes = TRY(timed(*costs_, DriverCall::processes,
                             [&] { return list_processes(library_, device_, false); }));
  if (!pace_.is_due(processes.size(), seen_, now)) return processes;
  pace_.begin(seen_, now, wall);
  const Utilisations used = timed(*costs_, DriverCall::utilisation, [&] {
    return read_utilisations(library_.functions(), device_, wall, seen_);
  });
  const bool first = !std::exchange(asked_, true);
  if (!used.answered) return processes;
  auto with_use = processes;
  put_utilisations(used, seen_, with_use);
  return first ? processes : with_use;  // what was used before is not of this window
}

// The instances that processes are on and the topology lacks.
std::set<int> NvmlTenants::strangers(const std::vector<GpuProcess>& processes) const {
  std::set<int> out;
  for (const GpuProcess& process : processes)
    if (process.gpu_instance) out.insert(*process.gpu_instance);
  for (const GpuInstance& instance : topology_->instances) out.erase(instance.id);
  return out;
}

Result<Activity> NvmlTenants::read_board(Instant now) {
  if (board_ == nullptr) return Activity{};
  const bool dear = costs_->mean(DriverCall::activity) >= kDearCall;
  if (!mig_ && dear && board_read_ && now - *board_read_ < kBoardEvery) return Activity{};
  board_read_ = now;
  auto activity = timed(*costs_, DriverCall::activity, [&] { return board_->read(now); });
  if (activity.ok() || activity.error().code == Errc::gpu_lost) return activity;
  return Activity{};
}

Result<Activity> NvmlTenants::read_instance(const GpuInstance& instance, Instant now) {
  Counters& counters = counters_.at({instance.id, instance.uuid});
  if (counters.gpm == nullptr) return Activity{};
  auto activity = timed(*costs_, DriverCall::activity, [&] { return counters.gpm->read(now); });
  const bool failed_before = std::exchange(counters.failed, !activity.ok());
  if (activity.ok() || activity.error().code == Errc::gpu_lost) return activity;
  // The instance may be gone. One that fails on is only one without counters.
  doubted_ = doubted_ || !failed_before;
  return Activity{};
}

}  // namespace derate
