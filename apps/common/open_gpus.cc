#include "open_gpus.h"

#include <fmt/format.h>

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/suggest.h"
#include "base/text.h"
#include "core/gpu_id.h"
#include "device/nvml/mig_topology.h"

namespace derate::cli {

namespace {

// Outlives every thread that is left behind in the driver.
const Clock& process_clock() {
  static const SystemClock clock;
  return clock;
}

// Each GPU on a thread of its own: one that hangs does not keep the others shut.
Result<NvmlDevices> open_side_by_side(const std::shared_ptr<const NvmlLibrary>& library) {
  constexpr std::chrono::seconds kDeadline(10);
  using Opened = Result<std::unique_ptr<NvmlDevice>>;
  std::vector<std::future<Opened>> pending;
  const int count = TRY(count_devices(*library));
  for (int index = 0; index < count; ++index) {
    auto promise = std::make_shared<std::promise<Opened>>();
    pending.push_back(promise->get_future());
    std::thread([promise, library, index] {
      promise->set_value(NvmlDevice::open(library, index, process_clock()));
    }).detach();
  }
  NvmlDevices devices;
  SystemClock clock;
  const Instant end = clock.now() + kDeadline;
  for (int index = 0; index < count; ++index) {
    auto& answer = pending[static_cast<std::size_t>(index)];
    const Duration left = std::max(Duration{}, end - clock.now());
    if (answer.wait_for(left) != std::future_status::ready) {
      devices.failed.push_back(
          {index, {Errc::gpu_stuck, fmt::format("has not answered for {} s", kDeadline.count())}});
      continue;
    }
    Opened device = answer.get();
    if (device.ok())
      devices.opened.push_back(*std::move(device));
    else
      devices.failed.push_back({index, std::move(device).error()});
  }
  return devices;
}

// An instance stands for its GPU: clocks and limits are the whole GPU's.
Result<std::string> without_instances(const NvmlLibrary& library, const std::string& choice) {
  std::string out;
  for (const std::string_view item : split(choice, ',')) {
    const std::string name(trim(item));
    if (!out.empty()) out += ',';
    out += name.starts_with("MIG-") ? TRY(gpu_of_mig_device(library, name)) : name;
  }
  return out;
}

Result<OpenGpus> open_on_this_thread(const std::string& choice, NvmlPatience patience) {
  const auto library = TRY(NvmlLibrary::load());
  NvmlDevices devices = TRY(open_side_by_side(library));
  OpenGpus out;
  out.driver_version = library->driver_version().value_or("");
  for (const FailedGpu& failed : devices.failed)
    out.notes.push_back(fmt::format("GPU {}: {}", failed.index, failed.error.message));
  if (devices.opened.empty()) {
    if (!devices.failed.empty()) return std::move(devices.failed.front().error);
    return Error{Errc::not_found, "the driver is loaded but there is no NVIDIA GPU"};
  }
  std::vector<GpuId> ids;
  for (const auto& device : devices.opened) ids.push_back(device->capability().id);
  for (const int at : TRY(select_gpus(ids, TRY(without_instances(*library, choice))))) {
    auto& device = devices.opened[static_cast<std::size_t>(at)];
    ClockControl* control = device.get();
    auto source = TRY(NvmlSource::create(std::move(device), control, patience));
    OpenGpu gpu;
    gpu.control = source.get();
    gpu.source = std::move(source);
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

}  // namespace

Opening::Opening(std::string choice, NvmlPatience patience) {
  auto promise = std::make_shared<std::promise<Result<OpenGpus>>>();
  outcome_ = promise->get_future();
  // A thread inherits the mask: signals are for the program's main thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread([promise, choice = std::move(choice), patience] {
    promise->set_value(open_on_this_thread(choice, patience));
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::optional<Result<OpenGpus>> Opening::poll() {
  if (outcome_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
  return outcome_.get();
}

// Loading the library and opening the GPUs can hang like any driver call; many GPUs take seconds.
Result<OpenGpus> open_nvml_gpus(const std::string& choice, NvmlPatience patience,
                                const std::function<void()>& alive) {
  constexpr std::chrono::seconds kDeadline(30);
  constexpr std::chrono::milliseconds kAliveEvery(500);
  Opening opening(choice, patience);
  SystemClock clock;
  const Instant end = clock.now() + kDeadline;
  Instant next_alive = clock.now();
  while (true) {
    if (auto outcome = opening.poll()) return *std::move(outcome);
    if (clock.now() >= end) break;
    if (clock.now() >= next_alive) {
      alive();
      next_alive = clock.now() + kAliveEvery;
    }
    clock.sleep_until(clock.now() + std::chrono::milliseconds(2));
  }
  return Error{Errc::gpu_stuck,
               fmt::format("the NVIDIA driver has not answered for {} s: a GPU may "
                           "hang; dmesg may tell which",
                           kDeadline.count())};
}

Result<std::unique_ptr<KnobControl>> open_to_restore(const DomainId& domain) {
  if (domain.kind != kGpuKind)
    return Error{Errc::not_supported, "this version does not know what a " + domain.kind + " is"};
  return TRY(NvmlDevice::open_uuid(TRY(NvmlLibrary::load()), domain.name, process_clock()));
}

Result<SimSetup> find_sim_setup(const SimCliOptions& options) {
  SimSetup out;
  out.chip = TRY(find_sim_chip(options.chip));
  if (options.data.empty() && !options.workload.empty()) {
    out.workload = TRY(find_workload(*out.chip, options.workload));
    return out;
  }
  auto all = options.data.empty() ? TRY(built_in_workloads(*out.chip))
                                  : TRY(load_workload_tables(options.data, *out.chip));
  std::string known;
  for (Workload& workload : all) {
    if (options.workload.empty() || to_lower(workload.name) == to_lower(options.workload)) {
      out.workload = std::move(workload);
      return out;
    }
    known += known.empty() ? "" : ", ";
    known += workload.name;
  }
  return Error{Errc::not_found,
               fmt::format("{} has no workload '{}'{}", options.data, options.workload,
                           choices(options.workload, "; there are: ", known))};
}

Result<OpenGpus> open_sim_gpus(const SimSetup& setup, const SimCliOptions& options,
                               const std::string& choice, Clock& clock) {
  std::vector<GpuId> ids;
  for (int i = 0; i < options.gpus; ++i) ids.push_back(sim_capability(*setup.chip, i).id);
  OpenGpus out;
  out.driver_version = "simulated";
  for (const int i : TRY(select_gpus(ids, choice))) {
    const auto seed = static_cast<std::uint64_t>(options.seed) + static_cast<std::uint64_t>(i);
    OpenGpu gpu;
    gpu.sim = std::make_shared<SimGpu>(*setup.chip, SimOptions{.seed = seed});
    auto device = std::make_unique<SimDevice>(*gpu.sim, clock, i, seed);
    gpu.control = device.get();
    gpu.source = std::move(device);
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

}  // namespace derate::cli
