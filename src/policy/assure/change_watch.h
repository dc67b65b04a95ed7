// Notices that work has become other work: readings that jump or drift.
#pragma once

#include "signal/counters.h"
#include "signal/readings.h"

namespace derate {

// Two one-sided cumulative sums (Page, Biometrika 1954) of innovations: numbers of mean 0 and
// standard deviation 1 while nothing changes. The allowance is half a standard deviation, the alarm
// at 12: some 10^5 readings from one false alarm to the next.
class Cusum {
 public:
  bool add(double innovation);

 private:
  double up_ = 0, down_ = 0;
};

// Readings at one clock against their own mean so far.
class ChangeWatch {
 public:
  // The clock has changed: what follows is compared with itself.
  void clear();
  bool add(const Estimate& estimate, const SignalValues& signals);
  // While counters tell nothing.
  bool add_power(const Estimate& estimate);

 private:
  struct Stream {
    Readings readings;
    Cusum sum;
    bool add(double value, double least_sd);
    void clear();
  };
  std::array<Stream, kSignals> signals_;
  Stream utilisation_, power_;
};

}  // namespace derate
