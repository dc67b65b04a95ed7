#include "signal/counters.h"

#include <cmath>

namespace derate {
namespace {

constexpr struct {
  Signal signal;
  std::optional<Fraction> Activity::*share;
} kPipes[] = {{Signal::fp64, &Activity::fp64},
              {Signal::fp32, &Activity::fp32},
              {Signal::fp16, &Activity::fp16},
              {Signal::integer, &Activity::integer},
              {Signal::tensor, &Activity::tensor}};

}  // namespace

const char* to_string(Signal signal) {
  constexpr const char* kNames[] = {"memory utilisation", "DRAM activity", "fp64 pipe",
                                    "fp32 pipe",          "fp16 pipe",     "integer pipe",
                                    "tensor pipe",        "power",         "heartbeat"};
  return kNames[static_cast<std::size_t>(signal)];
}

SignalValues read_signals(const Estimate& estimate, Megahertz highest) {
  SignalValues out;
  const auto put = [&](Signal signal, const std::optional<Fraction>& share, double factor) {
    // GPM shows 0 or no number where it was read too soon after the last time.
    if (share && std::isfinite(share->value()) && share->value() > 0)
      out[static_cast<std::size_t>(signal)] = share->value() * factor;
  };
  put(Signal::memory, estimate.memory_utilisation, 1);
  put(Signal::dram, estimate.activity.dram, 1);
  if (!estimate.sm_clock) return out;
  for (const auto& [signal, share] : kPipes)
    put(signal, estimate.activity.*share, *estimate.sm_clock / highest);
  return out;
}

double share_of(Signal signal, double value, Megahertz clock, Megahertz highest) {
  return is_pipe(signal) ? value * (highest / clock) : value;
}

}  // namespace derate
