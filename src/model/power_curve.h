// The curve of a GPU's power by clock under one phase of work, learned from means over a second and
// more: log P = level + p x + q x^2, x as in model/progress_curve.h.
#pragma once

#include "base/units.h"
#include "model/progress_curve.h"

namespace derate {

class PowerCurve {
 public:
  explicit PowerCurve(const CoefficientPrior& prior);

  void observe(double x, Watts mean, double relative_variance);
  // Log of the power at x relative to that at 0.
  Belief relative(double x) const;
  // In logs of watts; its sd is very large before the first reading.
  Belief power(double x) const;

  const LinearBelief& belief() const { return belief_; }
  void recall(const LinearBelief& belief) { belief_ = belief; }

 private:
  LinearBelief belief_{3};
};

}  // namespace derate
