// The number of samples of which a driver makes its utilisation of processes, as its readings show.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace derate {

// Each sample counts as one process's, so a process's part of the busy time is a multiple of one
// over their number. An H200's driver takes five samples a second; one that credits each sample to
// two processes looks like one of ten. The smallest number that explains the readings counts.
// Readings that are no multiples of any of them are no samples: the rate stays as it was.
class SampleRate {
 public:
  static constexpr std::array<int, 9> kRates{1, 2, 3, 4, 5, 6, 8, 10, 12};  // a second

  // `parts` of the busy time of one tick, by process. A GPU that had idle time says nothing.
  void add(const std::vector<double>& parts, double seconds);
  double per_second() const { return rate_; }

 private:
  std::array<double, kRates.size()> off_{};  // readings of late that are no multiples
  // Of late: readings of several processes; of one; of another one than before.
  double mixed_ = 0, alone_ = 0, turns_ = 0;
  std::size_t last_alone_ = static_cast<std::size_t>(-1);
  double rate_ = 5;
};

}  // namespace derate
