// Work in one launch, as it changes while a job goes on: sequences grow longer,
// batches are sorted by length or drawn at random. The work of the job stays the same.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace derate {

// Work in a launch relative to the recording's. Each part is a factor; the factors multiply. All
// times are of the job's work: seconds at the highest clock.
struct LaunchWork {
  double drift = 0;                                // at its end it has grown by this share
  Duration drift_over = std::chrono::seconds(60);  // on a line, from the job's start; then it stays
  double wave = 0;                                 // amplitude of a sine; below 0: down first
  Duration wave_period = std::chrono::seconds(60);
  double random = 0;  // every kDrawnEvery another one, uniform within this share of 1
  double sorted = 0;  // from 1 - sorted to 1 + sorted on a line, anew every kEpoch; may be below 0

  static constexpr Duration kDrawnEvery = std::chrono::seconds(2);
  static constexpr Duration kEpoch = std::chrono::seconds(60);

  // Each launch stands for the same work.
  bool steady() const { return drift == 0 && wave == 0 && random == 0 && sorted == 0; }
};

// In a launch when so much of the job is done (seconds at the highest clock); 1: as recorded.
// `seed`: of what is random.
double work_per_launch(const LaunchWork& work, std::uint64_t seed, double done_s);

}  // namespace derate
