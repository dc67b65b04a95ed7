#include "fakenvml/session.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/clock.h"
#include "core/driver_costs.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

// A C library keeps its state in itself: NVML's functions have no other place for it.
struct Session {
  std::mutex mutex;
  int references = 0;
  std::shared_ptr<SimClient> client;
};
Session& session() {
  static Session* const only = new Session;  // never destroyed: a program's exit may still call
  return *only;
}

// Handles are the addresses of these, the same in every session of the process: the GPUs', then
// those of their MIG devices by slots.
char handles[kGpusMax * (1 + kInstancesMax)];
char instance_handles[kGpusMax * kInstancesMax];

// Which one it is; beyond all of them for a pointer to something else. The range as integers:
// comparing pointers into different objects has no meaning.
std::uintptr_t offset_in(const char* range, const void* handle) {
  return reinterpret_cast<std::uintptr_t>(handle) - reinterpret_cast<std::uintptr_t>(range);
}

std::shared_ptr<SimClient> current_client() {
  const std::scoped_lock lock(session().mutex);
  return session().client;
}

bool matches(const CallFault& fault, std::string_view function, unsigned int gpu, Handles handle) {
  if (fault.id == 0 || (fault.gpu != kEveryGpu && fault.gpu != gpu)) return false;
  const auto meant = static_cast<Handles>(fault.handles);
  if (meant != Handles::any && meant != handle) return false;
  const std::string name = get_text(fault.call);
  if (name.empty() || name.back() != '*') return name == function;
  return function.starts_with(std::string_view(name).substr(0, name.size() - 1));
}

bool strikes(SimClient& client, const CallFault& fault) {
  if (fault.counted == 0) return true;
  Request request;
  request.op = Op::count_call;
  request.a = fault.id;
  const auto reply = client.ask(request);
  return reply && reply->value != 0;
}

bool still_there(const State& state, std::uint32_t id) {
  const auto faults = state.faults.read();
  return faults && std::any_of(std::begin(faults->list), std::end(faults->list),
                               [&](const CallFault& fault) { return fault.id == id; });
}

// Until the fault is cleared or the server goes.
void hang(SimClient& client, std::uint32_t id) {
  SystemClock clock;
  while (client.alive() && still_there(client.state(), id))
    clock.sleep_until(clock.now() + std::chrono::milliseconds(5));
}

Return fault_of(SimClient& client, const char* function, unsigned int gpu,
                Handles handle = Handles::gpus) {
  if (client.state().call_faults.load(std::memory_order_acquire) == 0) return Return::success;
  const auto faults = client.state().faults.read();
  if (!faults) return Return::gpu_is_lost;
  for (const CallFault& fault : faults->list) {
    if (!matches(fault, function, gpu, handle) || !strikes(client, fault)) continue;
    if (fault.hangs == 0) return static_cast<Return>(fault.code);
    hang(client, fault.id);
  }
  return Return::success;
}

}  // namespace

Return ask_server(const Call& call, Op op, unsigned int a, unsigned int b) {
  Request request;
  request.op = op;
  request.gpu = call.gpu;
  request.a = a;
  request.b = b;
  const auto reply = call.client->ask(request);
  return reply ? static_cast<Return>(reply->code) : Return::gpu_is_lost;
}

nvml::Device handle_of(unsigned int gpu) { return reinterpret_cast<nvml::Device>(&handles[gpu]); }
nvml::Device handle_of(unsigned int gpu, unsigned int slot) {
  return reinterpret_cast<nvml::Device>(&handles[kGpusMax + gpu * kInstancesMax + slot]);
}
nvml::Instance instance_handle_of(unsigned int gpu, unsigned int slot) {
  return reinterpret_cast<nvml::Instance>(&instance_handles[gpu * kInstancesMax + slot]);
}
std::optional<std::pair<unsigned int, unsigned int>> place_of(nvml::Instance instance) {
  const std::uintptr_t offset = offset_in(instance_handles, instance);
  if (offset >= std::size(instance_handles)) return std::nullopt;
  return std::pair(static_cast<unsigned int>(offset / kInstancesMax),
                   static_cast<unsigned int>(offset % kInstancesMax));
}

std::optional<MigDeviceNow> Call::mig_device() const {
  if (!slot) return std::nullopt;
  const auto all = state().instances.read();
  if (!all || all->devices[*slot].there == 0) return std::nullopt;
  return all->devices[*slot];
}

std::optional<InjectedReading> Call::injected(Reading what, unsigned int id,
                                              unsigned int instance) const {
  if (client->state().injects.load(std::memory_order_acquire) == 0) return std::nullopt;
  const auto all = state().injected.read();
  if (!all) return std::nullopt;
  const InjectedReading* of_gpu = nullptr;
  for (std::size_t i = 0; i < all->count; ++i) {
    const InjectedReading& one = all->list[i];
    if (one.what != what || one.id != id) continue;
    if (one.instance == instance) return one;
    if (one.instance == kNone) of_gpu = &one;
  }
  return of_gpu != nullptr ? std::optional(*of_gpu) : std::nullopt;
}

Return open_session(const char* function) try {
  std::shared_ptr<SimClient> client;
  {
    const std::scoped_lock lock(session().mutex);
    client = session().client;
  }
  if (client == nullptr || !client->alive()) {
    auto connected = SimClient::connect(default_directory());
    if (!connected.ok()) return Return::driver_not_loaded;
    client = *std::move(connected);
  }
  if (const Return code = fault_of(*client, function, kEveryGpu); code != Return::success)
    return code;
  const std::scoped_lock lock(session().mutex);
  // A client whose server is gone serves nobody: everybody goes on with the new one.
  if (session().client == nullptr || !session().client->alive()) session().client = client;
  ++session().references;
  return Return::success;
} catch (...) {
  return Return::unknown;
}

Return close_session(const char* function) try {
  const auto client = current_client();
  if (client == nullptr) return Return::uninitialized;
  if (const Return code = fault_of(*client, function, kEveryGpu); code != Return::success)
    return code;
  const std::scoped_lock lock(session().mutex);
  if (session().references == 0) return Return::uninitialized;
  if (--session().references == 0) session().client.reset();
  return Return::success;
} catch (...) {
  return Return::unknown;
}

Return enter_unfaulted(Call& call) {
  call.client = current_client();
  if (call.client == nullptr) return Return::uninitialized;
  return call.client->alive() ? Return::success : Return::gpu_is_lost;
}

// Of GPM; a reading takes one such call and one of nvmlGpmMetricsGet.
constexpr Duration kGpmSample = std::chrono::microseconds(170);
// Power, clocks, utilisation, temperature and throttle reasons took 40 to 70 us together.
constexpr Duration kOtherCall = std::chrono::microseconds(6);

struct CallCpu {
  std::string_view function;
  Duration cpu;
};
constexpr CallCpu kH200[] = {
    {"nvmlDeviceGetTotalEnergyConsumption", h200_cost(DriverCall::energy)},
    {"nvmlDeviceGetProcessUtilization", h200_cost(DriverCall::utilisation)},
    {"nvmlDeviceGetProcessesUtilizationInfo", h200_cost(DriverCall::utilisation)},
    {"nvmlGpmMetricsGet", h200_cost(DriverCall::activity) - kGpmSample},
    {"nvmlGpmSampleGet", kGpmSample},
};

// $DERATE_SIM_CPU=h200: calls take the CPU time of an H200's driver. For benches.
void spend_cpu(std::string_view function) {
  static const bool spends = [] {
    const char* const chip = ::secure_getenv("DERATE_SIM_CPU");
    return chip != nullptr && std::string_view(chip) == "h200";
  }();
  if (!spends) return;
  Duration cpu = kOtherCall;
  for (const CallCpu& call : kH200)
    if (call.function == function) cpu = call.cpu;
  for (const Duration end = thread_cpu_time() + cpu; thread_cpu_time() < end;) {
  }
}

Return enter(const char* function, Call& call) {
  spend_cpu(function);
  const Return code = enter_unfaulted(call);
  return code != Return::success ? code : fault_of(*call.client, function, kEveryGpu);
}

Return enter_gpu(const char* function, const Call& call, unsigned int gpu) {
  const auto faults = call.client->state().faults.read();
  if (!faults) return Return::gpu_is_lost;
  for (const CallFault& fault : faults->list)
    if (fault.gpu == gpu && matches(fault, function, gpu, Handles::gpus) &&
        strikes(*call.client, fault))
      return static_cast<Return>(fault.code);
  return Return::success;
}

Return enter_any(const char* function, nvml::Device device, Call& call) {
  spend_cpu(function);
  if (const Return code = enter_unfaulted(call); code != Return::success) return code;
  const std::uintptr_t offset = offset_in(handles, device);
  if (offset >= std::size(handles)) return Return::invalid_argument;
  const std::uintptr_t mig = offset < kGpusMax ? 0 : offset - kGpusMax;
  call.gpu = static_cast<unsigned int>(offset < kGpusMax ? offset : mig / kInstancesMax);
  if (offset >= kGpusMax) call.slot = static_cast<unsigned int>(mig % kInstancesMax);
  if (call.gpu >= call.client->state().gpus) return Return::invalid_argument;
  const Handles handle = call.slot ? Handles::mig_devices : Handles::gpus;
  if (const Return code = fault_of(*call.client, function, call.gpu, handle);
      code != Return::success)
    return code;
  const auto now = call.state().now.read();
  return !now || now->lost != 0 ? Return::gpu_is_lost : Return::success;
}

// Assumed: what is not told of MIG devices is NOT_SUPPORTED for them.
Return enter(const char* function, nvml::Device device, Call& call) {
  const Return code = enter_any(function, device, call);
  return code == Return::success && call.slot ? Return::not_supported : code;
}

Return give_text(std::string_view text, char* out, unsigned int size) {
  if (out == nullptr) return Return::invalid_argument;
  if (text.size() + 1 > size) return Return::insufficient_size;
  text.copy(out, text.size());
  out[text.size()] = '\0';
  return Return::success;
}

}  // namespace derate::fakenvml
