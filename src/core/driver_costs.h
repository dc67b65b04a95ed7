// The CPU time that calls of a GPU's driver take in the thread that makes them. The driver reads
// some sensors by itself: on an H200 the energy counter takes 4.5 ms of CPU a call, the utilisation
// of processes 2.9 ms (docs/real-gpu.md).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace derate {

enum class DriverCall : std::uint8_t {
  energy,       // the energy counter
  activity,     // GPM
  processes,    // the list of those with a context
  utilisation,  // of each process
  sensors,      // all other readings of a sample, together
  modes,        // the settings of other tools (core/gpu_modes.h)
  card,         // memory, link, fan, errors (core/card_reading.h)
};
inline constexpr std::size_t kDriverCalls = 7;
const char* to_string(DriverCall call);

// A call that takes less is made whenever it is useful.
inline constexpr Duration kDearCall = std::chrono::microseconds(500);

// The CPU time of a dear call by an H200's driver, 580.159.04 (docs/real-gpu.md), of GPM by an
// H100's; zero for other calls. In the header for the stand-in NVML, which links no more than base.
constexpr Duration h200_cost(DriverCall call) {
  using std::chrono::microseconds;
  if (call == DriverCall::energy) return microseconds(4500);
  if (call == DriverCall::utilisation) return microseconds(2900);
  return call == DriverCall::activity ? microseconds(1600) : microseconds(0);
}

// The time from one reading of the energy counter to the next in surveys of tenants, if a reading
// takes `cost`. Between two readings power gives the energy (attrib/samples/paced_counter.h). Zero:
// each survey reads it. `works`: a process works on the GPU.
Duration survey_counter_every(Duration cost, bool works);

// Sensors that take less than this together are read at any pace.
inline constexpr Duration kCostlySensors = std::chrono::microseconds(20);

// Written by one thread, read by any.
class DriverCosts {
 public:
  void add(DriverCall call, Duration cpu);

  std::uint64_t calls(DriverCall call) const { return of(call).calls.load(); }
  Duration total(DriverCall call) const { return Duration(of(call).total_ns.load()); }
  // A call's mean of late; zero before the first.
  Duration mean(DriverCall call) const { return Duration(of(call).mean_ns.load()); }

 private:
  struct Sums {
    std::atomic<std::uint64_t> calls = 0;
    std::atomic<std::int64_t> total_ns = 0, mean_ns = 0;
  };
  const Sums& of(DriverCall call) const { return sums_[static_cast<std::size_t>(call)]; }

  std::array<Sums, kDriverCalls> sums_;
};

}  // namespace derate
