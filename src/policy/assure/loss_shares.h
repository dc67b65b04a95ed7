// The division of a promise for the whole of the work among phases that alternate: a phase that
// saves much energy in little time may lose more than the promise if another phase loses less.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace derate {

// A phase: what each clock costs, clocks upwards, at least one; the same clocks for all.
struct PhaseCosts {
  double work = 0;             // its share, in seconds at the reference
  std::vector<double> time;    // s for a second of that
  std::vector<double> energy;  // J for it
};

// For each phase the place of its clock: of all choices by which the whole takes `longest` seconds
// for a second of work at most, one of least energy or nearly so (of those on the lower convex hull
// of time and energy, by the method of Lagrange: Everett, Operations Research 1963). Where none
// keeps it: each phase's quickest.
std::vector<std::size_t> share_loss(std::span<const PhaseCosts> phases, double longest);

}  // namespace derate
