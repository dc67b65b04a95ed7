// The rate of heartbeats at each clock, against the first one there. If it moves while power does
// not, beats may stand for unequal work.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/estimate.h"

namespace derate {

class BeatRates {
 public:
  static constexpr double kMoves = 0.05;       // of the rate, in logs: from here on it counts
  static constexpr double kPowerRests = 0.02;  // of power, in logs: within this it does not move

  void add(const Estimate& estimate);
  // By how much of the first the rate moved, at one clock and in one phase, while power did not:
  // the most of two means of 10 s or more that follow each other. Empty: never by kMoves.
  std::optional<double> moved() const { return moved_; }

 private:
  // Beats while the clock is held.
  struct Span {
    Progress first;
    std::string phase;
    Megahertz clock{};
    Instant newest{};  // time of the last beat
    int beats = 0;     // after the first
    double watts = 0;
    int ticks = 0;
  };
  struct Mean {
    double log_rate = 0, log_power = 0;
    double moved_last = 0;  // of the mean before this one; 0: it did not move
  };
  void begin(const Estimate& estimate);
  void end(const Progress& last);

  std::optional<Span> span_;
  std::map<std::pair<long, std::string>, Mean> first_;  // by clock, MHz, and phase
  std::optional<double> moved_;
};

}  // namespace derate
