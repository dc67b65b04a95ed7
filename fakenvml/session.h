// The entry checks of every function of the library: NVML is initialised, the server lives, the
// handle names a GPU, and no injected fault strikes the call.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "fakenvml/abi.h"
#include "fakenvml/sim_client.h"

namespace derate::fakenvml {

// One call on its way. `gpu` is kEveryGpu for calls that name none.
struct Call {
  std::shared_ptr<SimClient> client;
  unsigned int gpu = kEveryGpu;
  std::optional<unsigned int> slot = {};  // of the GPU's MIG devices, when one of them is meant

  const GpuIdentity& identity() const { return client->state().identity[gpu]; }
  const GpuState& state() const { return client->state().gpu[gpu]; }
  // Empty without a slot, and when there is no MIG device in it (any more).
  std::optional<MigDeviceNow> mig_device() const;
  // Empty unless a test injects one; an instance without its own has the GPU's.
  std::optional<InjectedReading> injected(Reading what, unsigned int id,
                                          unsigned int instance = kNone) const;
};

nvml::Return open_session(const char* function);
nvml::Return close_session(const char* function);

// Errors as NVML has them: uninitialized, invalid_argument for a handle that is none, gpu_is_lost
// also when the server is gone, and what a fault says.
nvml::Return enter(const char* function, Call& call);
nvml::Return enter(const char* function, nvml::Device device, Call& call);
// The same for a GPU or a MIG device; not_supported by the one above for the latter.
nvml::Return enter_any(const char* function, nvml::Device device, Call& call);
// Once more, for a call that names its GPU by other means than a handle: what a fault of that GPU
// says.
nvml::Return enter_gpu(const char* function, const Call& call, unsigned int gpu);
// The same for a GPU that is known by other means.
nvml::Return enter_unfaulted(Call& call);

// A write to the call's GPU, in the units of protocol.h.
nvml::Return ask_server(const Call& call, Op op, unsigned int a, unsigned int b = 0);

nvml::Device handle_of(unsigned int gpu);
// Of the MIG device, and of the GPU instance, in that slot: whoever is in it.
nvml::Device handle_of(unsigned int gpu, unsigned int slot);
nvml::Instance instance_handle_of(unsigned int gpu, unsigned int slot);
// Empty for a handle that is none.
std::optional<std::pair<unsigned int, unsigned int>> place_of(nvml::Instance instance);

// Nothing that is thrown leaves the library: a C program cannot catch it.
template <class Enter, class F>
nvml::Return entered(Enter enter, F body) {
  try {
    Call call;
    const nvml::Return code = enter(call);
    return code != nvml::Return::success ? code : body(call);
  } catch (...) {
    return nvml::Return::unknown;
  }
}
template <class F>
nvml::Return guarded(const char* function, F body) {
  return entered([&](Call& call) { return enter(function, call); }, body);
}
template <class F>
nvml::Return on_gpu(const char* function, nvml::Device device, F body) {
  return entered([&](Call& call) { return enter(function, device, call); }, body);
}
template <class F>
nvml::Return on_any(const char* function, nvml::Device device, F body) {
  return entered([&](Call& call) { return enter_any(function, device, call); }, body);
}
// On a MIG device.
template <class F>
nvml::Return on_mig(const char* function, nvml::Device device, F body) {
  return on_any(function, device, [&](const Call& call) {
    const auto mig = call.mig_device();
    return mig ? body(call, *mig) : nvml::Return::invalid_argument;
  });
}

// With the sensors and settings of now.
template <class F>
nvml::Return with_now(const char* function, nvml::Device device, F body) {
  return on_gpu(function, device, [&](const Call& call) {
    const auto now = call.state().now.read();
    return now ? body(call, *now) : nvml::Return::gpu_is_lost;
  });
}

// One value, made from the call or from the sensors.
template <class T, class F>
nvml::Return give(const char* function, nvml::Device device, T* out, F value) {
  return on_gpu(function, device, [&](const Call& call) {
    if (out == nullptr) return nvml::Return::invalid_argument;
    *out = static_cast<T>(value(call));
    return nvml::Return::success;
  });
}
template <class T, class F>
nvml::Return give_now(const char* function, nvml::Device device, T* out, F value) {
  return with_now(function, device, [&](const Call&, const GpuNow& now) {
    if (out == nullptr) return nvml::Return::invalid_argument;
    *out = static_cast<T>(value(now));
    return nvml::Return::success;
  });
}

// Each defines a function of NVML that gives one value, by its name, the value's type, and the
// value made of `call`, or of `now`. It is a C function of its own: faults are injected by its
// name.
#define GIVES(name, T, value)                                                                    \
  nvml::Return name(nvml::Device device, std::add_pointer_t<T> out) {                            \
    return give(__func__, device, out, []([[maybe_unused]] const Call& call) { return value; }); \
  }
#define GIVES_NOW(name, T, value)                                                    \
  nvml::Return name(nvml::Device device, std::add_pointer_t<T> out) {                \
    return give_now(__func__, device, out, [](const GpuNow& now) { return value; }); \
  }

// A text with its end, or insufficient_size.
nvml::Return give_text(std::string_view text, char* out, unsigned int size);

}  // namespace derate::fakenvml
