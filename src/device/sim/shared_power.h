// Power model of several tenants on one simulated GPU: the watts that they draw together. Together
// they draw another power than the sum of what each draws alone, so no measurement divides it among
// them: the truth here is the Shapley value (model/shapley.h).
#pragma once

namespace derate {

// Dynamic watts x, as the sum of each alone, become
//   x (1 - loss x) + wake (1 - e^(-x / wake_scale)).
// The first term: a busier supply holds a lower voltage. The second: what wakes with the first of
// them, the way between the multiprocessors and the memory, and is free for the others. The forms
// are assumed; that the last slices cost less is reported of H100s (power full at n - 1 slices).
struct SharedPower {
  double loss = 1e-4;  // per watt
  double wake = 18;    // W
  double wake_scale = 70;
};

double together(const SharedPower& shared, double alone);

}  // namespace derate
