// A bound of the clock for requests that wait for their first token.
//
// A prompt that is read at a lower clock is ready later, and a request that comes meanwhile waits
// for it: twice as long as at the highest clock, if its own prompt is short. With R the mean number
// of requests that wait for their first token, such requests in ten minutes are taken to be
//
//     6 R^2 + 300 R^2 x^2,   x = highest / clock - 1
//
// The second term follows from requests that come at random; the first is there as soon as the
// clock changes at all, since steps then begin at other moments. The constants were fitted to a
// simulated V100 at 15, 40 and 65 % of its capacity. At 15 and 40 % fewer come late since the clock
// stays up until a long prompt has been read (docs/policies/slo.md).
#pragma once

#include "signal/serving/engine_watch.h"

namespace derate {

class FirstTokens {
 public:
  void look(const EngineDelta& delta);
  // R, over the last minute or so; at first a prior.
  double waiting() const;
  // The largest x at which at most so many first tokens are expected to come more than twice as
  // late in ten minutes; 0: the highest clock.
  double largest_x(double late) const;

 private:
  double time_s_ = 60, wait_s_ = 60 * 0.1;  // prior: 0.1 requests over a minute
};

}  // namespace derate
