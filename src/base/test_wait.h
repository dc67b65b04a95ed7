// Waiting in tests for something that another thread or process does.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace derate {

// Looks each 2 ms until it is true; false after 10 s.
template <class F>
bool becomes_true(F is_true) {
  SystemClock clock;
  for (int i = 0; i < 5000; ++i) {
    if (is_true()) return true;
    clock.sleep_until(clock.now() + std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace derate
