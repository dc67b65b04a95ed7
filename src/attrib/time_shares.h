// Estimates each process's share of the GPU's time from utilisation readings that are too coarse to
// give it for one second.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attrib/tick.h"

namespace derate {

struct TimeShare {
  double share = 0;  // of the GPU's time, 0..1
  double sd = 0;     // of that
};

// An H200's driver gives each of its samples, of 200 ms, to one process whole: two processes that
// had half of a second each read as 0.2 and 0.8, or 0 and 1, at random, and each one's memory
// utilisation is its part of the whole GPU's (measured; docs/attribute-results.md). Where readings
// look like that they are counted over a minute or so, and little is believed of few: processes
// that work take equal turns. Readings that do not look like that are taken as they are.
class TimeShares {
 public:
  // By the tenants of the tick; empty for one without such a reading.
  std::vector<std::optional<TimeShare>> step(const AttribTick& tick);

 private:
  struct Turns {
    double samples = 0;            // that were its own, lately
    std::optional<double> idle_s;  // since its last one; empty: it never had one
    bool here = false;

    bool works() const;
  };
  void add_tick(const AttribTick& tick, double busy);
  void judge_readings(const AttribTick& tick, double busy);

  std::map<std::string, Turns> turns_;
  std::size_t workers_ = 0;         // in the tick before
  std::optional<double> distance_;  // of readings from whole samples
};

}  // namespace derate
