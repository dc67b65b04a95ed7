// Readings of made-up work, for tests.
#pragma once

#include <cmath>

#include "policy/assure/reading_batch.h"

namespace derate {

inline void put(ReadingBatch& look, Signal signal, double value, int times = 5) {
  for (int i = 0; i < times; ++i) look.of(signal).add(value * (i % 2 == 0 ? 1.001 : 0.999));
}

// Work of this performance at x: DRAM and tensor counters follow it, power falls with the clock.
inline ReadingBatch look_at(double x, double performance, double dram = 0.5, double tensor = 0.4) {
  ReadingBatch look;
  look.x = x;
  put(look, Signal::dram, dram * performance);
  put(look, Signal::tensor, tensor * performance);
  put(look, Signal::power, 500 * performance * std::exp(-1.4 * x));
  for (int i = 0; i < 5; ++i) look.gpu_utilisation.add(0.98);
  return look;
}

}  // namespace derate
