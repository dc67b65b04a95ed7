#include "device/sim/shared_power.h"

#include <cmath>

namespace derate {

double together(const SharedPower& shared, double alone) {
  return alone * (1 - shared.loss * alone) +
         shared.wake * (1 - std::exp(-alone / shared.wake_scale));
}

}  // namespace derate
