#include "open_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "base/background_worker.h"
#include "base/suggest.h"
#include "base/text.h"
#include "device/nvml/nvml_backend.h"
#include "device/sim/sim_device.h"

namespace derate::cli {

namespace {

// --- the back ends -------------------------------------------------------------------------------

Result<FoundGpus> list_sim(SimSetup& setup, const SimCliOptions& options,
                           const std::string& choice) {
  setup = TRY(find_sim_setup(options));
  std::vector<GpuId> ids;
  for (int i = 0; i < options.gpus; ++i) ids.push_back(sim_capability(*setup.chip, i).id);
  FoundGpus out{.ids = {}, .driver_version = "simulated", .notes = {}};
  for (const int at : TRY(select_gpus(ids, choice)))
    out.ids.push_back(ids[static_cast<std::size_t>(at)]);
  return out;
}

OpenGpu open_sim(const SimSetup& setup, const GpuRequest& request, const GpuId& id, Clock& clock) {
  const auto seed =
      static_cast<std::uint64_t>(request.sim.seed) + static_cast<std::uint64_t>(id.index);
  OpenGpu out;
  out.sim = std::make_shared<SimGpu>(*setup.chip, SimOptions{.seed = seed});
  if (request.workload == SimWorkload::at_once) out.sim->start(setup.workload, Duration::zero());
  auto device = std::make_unique<SimDevice>(*out.sim, clock, id.index, seed);
  out.control = device.get();
  out.source = std::move(device);
  return out;
}

Backend sim_backend(const GpuRequest& request, Clock& clock) {
  const auto setup = std::make_shared<SimSetup>();
  return {.name = "the simulator",
          .capabilities = {.virtual_time = true},
          .list = [setup, sim = request.sim](
                      const std::string& choice) { return list_sim(*setup, sim, choice); },
          .open = [setup, request, &clock](const GpuId& id) -> Result<OpenGpu> {
            return open_sim(*setup, request, id, clock);
          }};
}

Backend real_backend(const GpuRequest& request, Clock&) {
  constexpr NvmlPatience kLoopPatience{std::chrono::milliseconds(50),
                                       std::chrono::milliseconds(500)};
  return nvml_backend(request.patience == Patience::of_loop ? kLoopPatience : NvmlPatience{});
}

// The first that is wanted is taken.
struct BackendRow {
  bool (*wanted)(const GpuRequest& request);
  Backend (*make)(const GpuRequest& request, Clock& clock);
  // Null where no setting outlives the process.
  Result<std::unique_ptr<ClockControl>> (*open_to_restore)(const std::string& uuid);
};
constexpr BackendRow kBackends[] = {
    {[](const GpuRequest& request) { return !request.sim.chip.empty(); }, sim_backend, nullptr},
    {[](const GpuRequest&) { return true; }, real_backend, open_nvml_to_restore},
};

Backend backend_of(const GpuRequest& request, Clock& clock) {
  const auto row = std::find_if(std::begin(kBackends), std::end(kBackends),
                                [&](const BackendRow& each) { return each.wanted(request); });
  return row->make(request, clock);
}

// --- opening -------------------------------------------------------------------------------------

Result<OpenGpus> open_all(const Backend& backend, const std::string& choice) {
  FoundGpus found = TRY(backend.list(choice));
  OpenGpus out{{}, std::move(found.driver_version), std::move(found.notes)};
  for (const GpuId& id : found.ids) out.gpus.push_back(TRY(backend.open(id)));
  return out;
}

OpeningPoll open_on_a_thread(Backend backend, std::string choice) {
  auto promise = std::make_shared<std::promise<Result<OpenGpus>>>();
  const auto outcome = std::make_shared<std::future<Result<OpenGpus>>>(promise->get_future());
  start_thread([promise, backend = std::move(backend), choice = std::move(choice)]() mutable {
    Result<OpenGpus> opened = open_all(backend, choice);
    backend = {};  // GPUs that were not chosen close before anybody goes on
    promise->set_value(std::move(opened));
  });
  return [outcome]() -> std::optional<Result<OpenGpus>> {
    if (outcome->wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return std::nullopt;
    return outcome->get();
  };
}

// Loading the library and opening the GPUs can hang like any driver call; many GPUs take seconds.
Result<OpenGpus> wait_for_opening(Backend backend, const GpuRequest& request) {
  constexpr std::chrono::seconds kDeadline(30);
  constexpr std::chrono::milliseconds kAliveEvery(500);
  const std::string name = backend.name;
  const OpeningPoll poll = open_on_a_thread(std::move(backend), request.gpus);
  SystemClock clock;
  const Instant end = clock.now() + kDeadline;
  Instant next_alive = clock.now();
  while (true) {
    if (auto outcome = poll()) return *std::move(outcome);
    if (clock.now() >= end) break;
    if (clock.now() >= next_alive) {
      request.alive();
      next_alive = clock.now() + kAliveEvery;
    }
    clock.sleep_until(clock.now() + std::chrono::milliseconds(2));
  }
  return Error{Errc::gpu_stuck,
               fmt::format("{} has not answered for {} s: a GPU may hang; dmesg may tell which",
                           name, kDeadline.count())};
}

}  // namespace

BackendCapabilities backend_capabilities(const SimCliOptions& sim) {
  SystemClock clock;
  return backend_of({.sim = sim}, clock).capabilities;
}

Result<OpenGpus> open_gpus(const GpuRequest& request, Clock& clock) {
  Backend backend = backend_of(request, clock);
  if (backend.capabilities.hardware) return wait_for_opening(std::move(backend), request);
  return open_all(backend, request.gpus);
}

Result<void> open_quickly(GpusOnClock& opened, const GpuRequest& request) {
  if (backend_capabilities(request.sim).virtual_time)
    opened.virtual_time = std::make_unique<FakeClock>();
  opened.gpus = TRY(open_gpus(request, opened.clock()));
  return {};
}

OpeningPoll begin_opening(const std::string& choice) {
  static SystemClock clock;  // outlives a thread that is left behind
  const GpuRequest request{.gpus = choice, .patience = Patience::of_loop};
  return open_on_a_thread(backend_of(request, clock), choice);
}

Result<std::unique_ptr<KnobControl>> open_to_restore(const DomainId& domain) {
  if (domain.kind != kGpuKind)
    return Error{Errc::not_supported, "this version does not know what a " + domain.kind + " is"};
  for (const BackendRow& row : kBackends)
    if (row.open_to_restore != nullptr) return TRY(row.open_to_restore(domain.name));
  return Error{Errc::not_supported, domain.name + ": no back end sets GPUs of this machine"};
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

}  // namespace derate::cli
