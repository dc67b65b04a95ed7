// How late the rounds of a loop begin.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"

namespace derate {

// Of the last rounds.
class Lateness {
 public:
  static constexpr std::size_t kKept = 1000;
  void add(Duration late);
  std::uint64_t rounds() const { return rounds_; }
  // Empty before the first round.
  std::optional<Duration> quantile(double share) const;

 private:
  std::vector<Duration> kept_;
  std::uint64_t rounds_ = 0;
};

}  // namespace derate
