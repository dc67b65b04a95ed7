// Signals that stand for the progress of work that no application counts: memory, pipe and power
// counters, which grow in proportion to it at one kind of work.
#pragma once

#include <array>
#include <optional>

#include "core/estimate.h"

namespace derate {

// Memory traffic: NVML's share of time with any, and DRAM activity. Pipes: share of cycles in which
// they are busy, times the clock. Power: a weak witness, but one that every GPU has. Beats: units
// of work a second.
enum class Signal : std::uint8_t { memory, dram, fp64, fp32, fp16, integer, tensor, power, beat };
inline constexpr std::size_t kSignals = 9;
using SignalValues = std::array<std::optional<double>, kSignals>;  // by Signal

inline bool is_pipe(Signal signal) { return signal >= Signal::fp64 && signal <= Signal::tensor; }
const char* to_string(Signal signal);

// `highest`: what pipes' clocks are relative to. Power and beats are left out: they come at a pace
// of their own.
SignalValues read_signals(const Estimate& estimate, Megahertz highest);
// The share that the reading itself was, before it was multiplied by the clock.
double share_of(Signal signal, double value, Megahertz clock, Megahertz highest);

}  // namespace derate
