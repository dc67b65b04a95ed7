// The lateness of the rounds of a loop.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"

namespace derate {

struct LatenessFigures {
  std::uint64_t rounds = 0;           // in all
  std::optional<Duration> p99, most;  // of the last ones; empty before the first
};

// Keeps the lateness of the last rounds.
class Lateness {
 public:
  static constexpr std::size_t kKept = 1000;
  void add(Duration late);
  std::uint64_t rounds() const { return rounds_; }
  // Empty before the first round.
  std::optional<Duration> quantile(double share) const;
  LatenessFigures figures() const { return {rounds_, quantile(0.99), quantile(1)}; }

 private:
  std::vector<Duration> kept_;
  std::uint64_t rounds_ = 0;
};

}  // namespace derate
