// What of an estimate stands for progress: counters that grow in proportion to it at one kind of
// work, and what the work itself says.
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

// Mean and noise of one signal's readings at one clock.
class Readings {
 public:
  void add(double value);
  // What was learned of the noise stays.
  void clear() { *this = Readings(noise_); }
  int count() const { return count_; }
  double mean() const { return sum_ / count_; }
  // Of one reading, from what follows what; no less than `step` rounds away.
  double variance(double step) const;
  // Of the mean's log, if readings are independent.
  double relative_variance(double step) const;
  // Of the variance of one, at most so much falls only with the number of readings, as of
  // independent ones: by how means of kBlock that follow each other differ. The rest is what one
  // has too much and the next too little. 1 until kFewBlocks differences are known.
  double independent_share() const;
  static constexpr int kBlock = 4, kFewBlocks = 8;

  Readings() = default;

 private:
  struct Noise {
    double variance = 0;
    int differences = 0;
    void add(double difference, double most);
  };
  struct Noises {
    Noise of_one, of_blocks;
  };
  explicit Readings(const Noises& noises) : noise_(noises) {}
  int count_ = 0;
  double sum_ = 0, block_sum_ = 0;
  std::optional<double> last_, last_block_;
  Noises noise_;
};

// The rate of work between two beats, while the clock is one.
class ProgressRate {
 public:
  // Empty when there is nothing new. `since`: from when on the clock has been what it is.
  std::optional<double> rate(const std::optional<Progress>& beat, Instant since);
  // As it was told last.
  const std::optional<Progress>& last() const { return last_; }
  // Between the last two of a source; zero: there were no two yet.
  Duration interval() const { return interval_; }

 private:
  std::optional<Progress> last_;
  Duration interval_{};
};

}  // namespace derate
