// The view of a GPU that a policy gets at a tick: the newest sample, judged and put in context. The
// governor makes it (govern/estimator.h); a policy never sees a device.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "core/sample.h"
#include "core/work_status.h"

namespace derate {

enum class Freshness : std::uint8_t {
  fresh,    // read within this tick
  stale,    // the newest sample is old: hold
  expired,  // too old to steer by: back to the GPU's own defaults
};

struct Estimate {
  Instant time{};
  Freshness freshness = Freshness::expired;
  bool idle = false;       // no kernel for longer than the idle rule's time
  bool launching = false;  // kernels were launched within the last second, whatever counters show
  bool hot = false;        // at or over the thermal rule's limit
  std::optional<Megahertz> sm_clock;         // as measured
  std::optional<Megahertz> memory_clock;     // likewise
  std::optional<bool> display;               // one is attached
  std::optional<Megahertz> requested_clock;  // what the last decision asked for, if any
  std::optional<Fraction> gpu_utilisation, memory_utilisation;
  std::optional<Watts> power_usage;               // as nvmlDeviceGetPowerUsage gives it
  std::optional<Watts> power;                     // the quickest true reading: instant, else usage
  std::optional<Joules> energy;                   // the counter, where this tick read it
  std::optional<std::uint64_t> throttle_reasons;  // throttle:: bits
  Activity activity;
  std::optional<int> tenants;  // as counted in this tick; most ticks do not count
  // Sum of the GPU utilisations of all governed GPUs of this loop (1 = one GPU fully busy): the
  // published GEEPAFS asks whether any GPU is busy.
  Fraction node_gpu_utilisation{0};
  // When each field was last read, in this tick or before: power's is that of power_instant,
  // whichever field it was taken from.
  FieldOrigins origins = {};
  WorkStatus work;

  bool operator==(const Estimate&) const = default;
};

}  // namespace derate
