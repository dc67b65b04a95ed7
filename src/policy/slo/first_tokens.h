// A bound of the clock for requests that wait for their first token.
//
// A prompt that is read at a lower clock is ready later, and who comes meanwhile waits for it:
// twice as long as at the highest clock, if his own prompt is short. With R the mean number of
// requests that wait for their first token, and the clock raised when a prompt is seen, simulated
// engines on a V100 at 15, 40 and 65 % of their capacity had, in ten minutes,
//
//     6 R^2 + 300 R^2 x^2,   x = highest / clock - 1
//
// such requests (docs/policies/slo.md); the first term is there as soon as the clock changes at
// all, since steps then begin at other moments.
#pragma once

#include "policy/slo/engine_watch.h"

namespace derate {

class FirstTokens {
 public:
  void look(const EngineDelta& delta);
  // R, over the last ten minutes or so; at first a prior.
  double waiting() const;
  // The largest x at which at most so many first tokens come more than twice as late in ten
  // minutes; 0: the highest clock.
  double largest_x(double late) const;

 private:
  double time_s_ = 60, wait_s_ = 60 * 0.1;  // prior: 0.1 requests over a minute
};

}  // namespace derate
