#include "policy/progress_signals.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kMemory = 0.02;      // weight of the newest difference of two readings
constexpr double kFirstNoise = 0.03;  // relative sd, before there are
constexpr int kFewDifferences = 4;
constexpr double kMostOfNoise = 16;  // times the variance

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

void Readings::add(double value) {
  ++count_;
  sum_ += value;
  if (last_) {
    double square = (value - *last_) * (value - *last_) / 2;
    // A jump is no noise.
    if (noise_.differences >= kFewDifferences)
      square = std::min(square, kMostOfNoise * noise_.variance);
    // The first few count alike, then the newest has a small share.
    noise_.variance += std::max(kMemory, 1.0 / ++noise_.differences) * (square - noise_.variance);
  }
  last_ = value;
}

double Readings::variance(double step) const {
  const double rounding = step * step / 12;
  if (noise_.differences >= kFewDifferences) return std::max(noise_.variance, rounding);
  const double first = kFirstNoise * (count_ > 0 ? mean() : 0);
  return std::max({first * first, noise_.variance, rounding});
}

double Readings::relative_variance(double step) const {
  return variance(step) / (count_ * mean() * mean());
}

std::optional<double> BeatRate::rate(const std::optional<Beat>& beat, Instant since) {
  if (!beat) {
    last_.reset();
    interval_ = {};
    return std::nullopt;
  }
  const std::optional<Beat> before = last_;
  if (before && before->source == beat->source && before->time == beat->time) return std::nullopt;
  last_ = beat;
  if (before) interval_ = before->source == beat->source ? beat->time - before->time : Duration{};
  const bool follows = before && before->source == beat->source && before->time >= since &&
                       beat->time > before->time && beat->done > before->done;
  if (!follows) return std::nullopt;
  return (beat->done - before->done) / seconds(beat->time - before->time);
}

}  // namespace derate
