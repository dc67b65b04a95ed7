// Times of an engine from token to token, by clock and by running requests, while no prompt is
// read; learned from the engine's own sums. With x = log(highest clock / clock) and r
// running requests,
//
//     log seconds = level + n x + b r
//
// n is 0 where the clock does not matter and 1 where it is all: of measured engines 0.54 to 1.01
// (V100, data/serving.csv). Prior: n 0.8 with a standard deviation of 0.25, b 0.01 with 0.02.
#pragma once

#include <optional>

#include "core/envelope.h"
#include "model/linear_belief.h"
#include "signal/serving/engine_watch.h"

namespace derate {

class StepTimes {
 public:
  StepTimes();
  // The mean of so many intervals between tokens, all at one clock.
  void observe(double x, double running, double seconds, double intervals);
  // Empty: nothing was observed.
  std::optional<double> expected(double x, double running) const;
  // The interval that one in a thousand exceeds, by the estimate and by how far means were off.
  std::optional<double> slowest(double x, double running) const;

 private:
  LinearBelief belief_;
  double off_ = 0.1;  // of means from what was expected, a log, running root mean square
  bool observed_ = false;
};

}  // namespace derate
