// Test of whether a model gives a process what its samples say: in one second they say little, in
// minutes they must agree.
#pragma once

namespace derate {

class ShareBalance {
 public:
  // The part that the model gave in a tick less the part of the samples; both 0..1.
  void add(double off, double seconds);
  // How many squared standard deviations the mean of these differences is off 0. Differences that
  // follow each other's course count as fewer.
  double surprise() const;

 private:
  // Over the last ten minutes: ticks, sums of differences, of their squares, of their products with
  // the tick before.
  double ticks_ = 0, sum_ = 0, square_ = 0, product_ = 0, before_ = 0;
};

}  // namespace derate
