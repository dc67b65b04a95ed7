// The choice of the GPU that sets the pace of a group that goes in step: the others wait for it.
// With equal clocks it is the GPU that waits least, so the busiest. If waiting looks like work
// (kernels that spin until the others arrive), it is the GPU with the lowest clock.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/estimate.h"

namespace derate {

// Of one GPU at a tick.
struct PaceReading {
  std::size_t gpu = 0;
  const Estimate* estimate = nullptr;
};

// Means over the last kPaceMemory, while anything is done.
struct PaceMean {
  std::size_t gpu = 0;
  double clock_mhz = 0, busy = 0;
};

inline constexpr Duration kPaceMemory = std::chrono::seconds(10);

struct PaceMeans {
  std::vector<PaceMean> of;
  Duration age{};  // time that the means are made of
  std::optional<Instant> at;

  const PaceMean* find(std::size_t gpu) const;
};

// `readings`: of all GPUs of a unit, taken in one tick. Begins anew when they are of other GPUs
// than before. One without a clock or a utilisation leaves its means as they were. Busy is the
// share of the time in which multiprocessors work, where all show it, else the GPU utilisation.
void add(PaceMeans& means, std::span<const PaceReading> readings);

// Whether they are of so long that they tell more than chance.
bool is_known(const PaceMeans& means);

// The GPU that sets the pace. `present` is kept while no other is slower by more than chance:
// busier by kBusier, or as busy and kLower lower in its clock, relative; where the work tells how
// far it is (`is_told`) by kSlowerTold: that goes on alike on all of them, and another's count is
// in another unit.
inline constexpr double kBusier = 0.02, kLower = 0.02, kSlowerTold = 0.04;
std::size_t slowest(const PaceMeans& means, std::size_t present, bool is_told = false);

}  // namespace derate
