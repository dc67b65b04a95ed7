// What every function of the library begins with: is it initialised, does the server live, which
// GPU is meant, and is this the call that goes wrong?
#pragma once

#include <memory>
#include <string_view>

#include "fakenvml/abi.h"
#include "fakenvml/sim_client.h"

namespace derate::fakenvml {

// One call on its way. `gpu` is kEveryGpu for calls that name none.
struct Call {
  std::shared_ptr<SimClient> client;
  unsigned int gpu = kEveryGpu;

  const GpuIdentity& identity() const { return client->state().identity[gpu]; }
  const GpuState& state() const { return client->state().gpu[gpu]; }
};

nvml::Return open_session(const char* function);
nvml::Return close_session(const char* function);

// Errors as NVML has them: uninitialized, invalid_argument for a handle that is none, gpu_is_lost
// also when the server is gone, and what a fault says.
nvml::Return enter(const char* function, Call& call);
nvml::Return enter(const char* function, nvml::Device device, Call& call);
// The same for a GPU that is known by other means.
nvml::Return enter_unfaulted(Call& call);

nvml::Device handle_of(unsigned int gpu);

// Nothing that is thrown leaves the library: a C program cannot catch it.
template <class F>
nvml::Return guarded(const char* function, F body) {
  try {
    Call call;
    const nvml::Return code = enter(function, call);
    return code != nvml::Return::success ? code : body(call);
  } catch (...) {
    return nvml::Return::unknown;
  }
}
template <class F>
nvml::Return on_gpu(const char* function, nvml::Device device, F body) {
  try {
    Call call;
    const nvml::Return code = enter(function, device, call);
    return code != nvml::Return::success ? code : body(call);
  } catch (...) {
    return nvml::Return::unknown;
  }
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
    *out = static_cast<T>(value(call.identity()));
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

// A text with its end, or insufficient_size.
nvml::Return give_text(std::string_view text, char* out, unsigned int size);

}  // namespace derate::fakenvml
