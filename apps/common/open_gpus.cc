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
  Backend out =
      nvml_backend(request.patience == Patience::of_loop ? kLoopPatience : NvmlPatience{});
  return request.dcgm ? with_dcgm(std::move(out), request.dcgm) : out;
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

// Starts `work` on a thread. The caller polls the returned function, which is empty until `work`
// has ended.
template <class T>
std::function<std::optional<Result<T>>()> on_a_thread(std::function<Result<T>()> work) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  const auto outcome = std::make_shared<std::future<Result<T>>>(promise->get_future());
  start_thread([promise, work = std::move(work)]() mutable {
    Result<T> done = work();
    work = nullptr;  // closes GPUs that were not chosen before the caller goes on
    promise->set_value(std::move(done));
  });
  return [outcome]() -> std::optional<Result<T>> {
    if (outcome->wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return std::nullopt;
    return outcome->get();
  };
}

OpeningPoll open_on_a_thread(Backend backend, std::string choice) {
  return on_a_thread<OpenGpus>([backend = std::move(backend), choice = std::move(choice)] {
    return open_all(backend, choice);
  });
}

// Loading the library and opening the GPUs can hang like any driver call; many GPUs take seconds.
template <class T>
Result<T> wait_for(const std::function<std::optional<Result<T>>()>& poll, const std::string& name,
                   Duration patience, const std::function<void()>& alive) {
  constexpr std::chrono::milliseconds kAliveEvery(500);
  SystemClock clock;
  const Instant end = clock.now() + patience;
  Instant next_alive = clock.now();
  while (true) {
    if (auto outcome = poll()) return *std::move(outcome);
    if (clock.now() >= end) break;
    if (clock.now() >= next_alive) {
      alive();
      next_alive = clock.now() + kAliveEvery;
    }
    clock.sleep_until(clock.now() + std::chrono::milliseconds(2));
  }
  return Error{Errc::gpu_stuck,
               fmt::format("{} has not answered for {:.0f} s: a GPU may hang; dmesg may tell which",
                           name, seconds(patience))};
}

}  // namespace

BackendCapabilities backend_capabilities(const SimCliOptions& sim) {
  SystemClock clock;
  return backend_of({.sim = sim}, clock).capabilities;
}

Result<OpenGpus> open_gpus(const GpuRequest& request, Clock& clock) {
  Backend backend = backend_of(request, clock);
  if (!backend.capabilities.hardware) return open_all(backend, request.gpus);
  constexpr std::chrono::seconds kDeadline(30);
  const std::string name = backend.name;
  return wait_for(open_on_a_thread(std::move(backend), request.gpus), name, kDeadline,
                  request.alive);
}

Result<SeenGpus> see_gpus(const SeePatience& patience, const std::function<void()>& alive) {
  SystemClock clock;
  const Backend backend = backend_of({}, clock);
  const auto see = [see = backend.see, each = patience.of_each] { return see(each); };
  return wait_for(on_a_thread<SeenGpus>(see), backend.name, patience.of_all, alive);
}

Result<void> open_quickly(GpusOnClock& opened, const GpuRequest& request) {
  if (backend_capabilities(request.sim).virtual_time)
    opened.virtual_time = std::make_unique<FakeClock>();
  opened.gpus = TRY(open_gpus(request, opened.clock()));
  return {};
}

OpenFleet open_real_fleet(const Settings& settings, const Log& log) {
  return [connection = dcgm_connection(settings, log)](const std::string& choice) {
    static SystemClock clock;  // outlives a thread that is left behind
    const GpuRequest request{.gpus = choice, .patience = Patience::of_loop, .dcgm = connection};
    return open_on_a_thread(backend_of(request, clock), choice);
  };
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
  out.chip = TRY(open_sim_chip(options.chip));
  if (options.data.empty() && !options.workload.empty()) {
    out.workload = TRY(find_workload(*out.chip, options.workload));
    return out;
  }
  auto all = options.data.empty() ? TRY(built_in_workloads(*out.chip))
                                  : TRY(load_workload_tables(options.data, *out.chip));
  if (all.empty())
    return Error{Errc::not_found,
                 fmt::format("{} has no fitted workloads: name a folder of measured tables with "
                             "--tables (docs/chips.md)",
                             out.chip->name)};
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
