// Helpers of the NVML readers of one GPU: calls that remember their outcome, and lists of a length
// that the driver alone knows.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "core/driver_costs.h"
#include "device/buffer_text.h"
#include "device/nvml/nvml_library.h"

namespace derate {

// A share in percent. Counters overshoot 100 a little; values far above it are no readings (DCGM's
// blank values, garbage).
inline std::optional<Fraction> nvml_share(double percents) {
  constexpr double kPercentMax = 110;
  if (!(percents >= 0 && percents <= kPercentMax)) return std::nullopt;
  return percent(std::min(100.0, percents));
}

// Returns what `call` returns, and adds the CPU time that it took to `costs`.
template <class Call>
auto timed(DriverCosts& costs, DriverCall what, Call&& call) {
  const Duration before = thread_cpu_time();
  auto out = call();
  costs.add(what, thread_cpu_time() - before);
  return out;
}

// The calls of one reading: makes each one that the driver has while the GPU is there, and
// remembers what became of them.
class NvmlCalls {
 public:
  explicit NvmlCalls(const NvmlLibrary& library) : library_(library) {}

  // True when the call succeeded.
  template <class... P, class... A>
  bool ok(const char* name, nvml::Return (*function)(P...), A... arguments) {
    if (function == nullptr || lost_) return false;
    return check(name, function(arguments...));
  }
  bool check(const char* name, nvml::Return code) {
    if (code == nvml::Return::success) return any_ = true;
    fail(library_.error(code, name));
    return false;
  }
  void fail(Error error) {
    if (error.code == Errc::gpu_lost && !lost_) lost_ = error;
    // What a GPU does not offer is no failure.
    if (error.code != Errc::not_supported && !failure_) failure_ = std::move(error);
  }

  bool lost() const { return lost_.has_value(); }

  // The error of the whole reading: the GPU is lost, or every call failed.
  std::optional<Error> error() const {
    if (lost_) return lost_;
    if (!any_ && failure_) return Error{Errc::query_failed, failure_->message};
    return std::nullopt;
  }

 private:
  const NvmlLibrary& library_;
  bool any_ = false;
  std::optional<Error> lost_, failure_;
};

// Reads a list whose length only the driver knows, and which may grow between two calls. `call`
// takes the room and returns the length. The buffer has twice the room that the driver is passed: a
// driver with rows longer than ours writes into the second half, not past the end.
template <class T, class Call>
nvml::Return read_nvml_rows(std::vector<T>& list, std::size_t& length, std::size_t room,
                            Call call) {
  constexpr int kTries = 5;
  constexpr std::size_t kRoomMax = 1 << 16;
  nvml::Return code = nvml::Return::insufficient_size;
  for (int i = 0; i < kTries && code == nvml::Return::insufficient_size && room <= kRoomMax; ++i) {
    list.assign(2 * room, T{});
    auto count = static_cast<unsigned int>(room);
    code = call(&count, list.data());
    length = std::min<std::size_t>(count, room);
    room = std::max<std::size_t>(room * 2, count);
  }
  if (code != nvml::Return::success) length = 0;
  return code;
}

template <class T, class Call>
nvml::Return read_nvml_list(std::vector<T>& list, std::size_t room, Call call) {
  std::size_t length = 0;
  const nvml::Return code = read_nvml_rows(list, length, room, call);
  list.resize(length);
  return code;
}

}  // namespace derate
