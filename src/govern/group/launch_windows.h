// The test of whether processes go in step: it compares their launches in windows that begin and
// end together.
//
// - Collectives (kernels by which GPUs exchange something) are launched by every rank, as many on
//   each, whatever else it launches: where all launch some, their counts since the processes began
//   differ by kBehind at most of those of the last windows. Two ranks on H200s were 4 of 14000
//   apart at most, with batches that are alike and with others (tests/fixtures/h200-launches/ddp).
// - Without them processes in step launch at rates that are one, in each window: on H200s their
//   ratio has an sd of 0.06 to 0.24 %, that of two independent trainings of one program 0.8 to
//   1.7 %, with means from 0.01 % on. The kernels must be the same ones, too. The test cannot
//   separate programs whose rates do not vary at all.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "signal/launches.h"

namespace derate {

class LaunchWindows {
 public:
  static constexpr std::size_t kMost = 15;  // windows that are looked at
  static constexpr double kFewest = 100;    // collectives of all of them
  static constexpr double kBehind = 0.01;   // of the collectives of all windows
  static constexpr double kMeanDiffers = 0.001, kSpread = 0.003;  // of rates' ratios, from 1
  static constexpr double kStays = 2;  // times that, once they are in step

  enum class Verdict : std::uint8_t { apart, exchange, same_rates };

  // Of each process, in one order. Empty: not all have a new window that ended with the others'.
  std::optional<Verdict> add(std::span<const LaunchRate* const> rates, bool are_in_step);

 private:
  struct Window {
    Instant time{};
    std::vector<double> per_second;
    std::vector<std::uint64_t> collectives;
  };
  double launched_since(std::size_t process) const;  // collectives, over all windows
  bool as_many_collectives() const;
  bool same_rates(double times) const;

  std::deque<Window> windows_;
};

}  // namespace derate
