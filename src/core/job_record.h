// What one job of an experiment did: its account, and its ticks for those who look closer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace derate {

// One tick, as a chart wants it.
struct Tick {
  float time_s = 0;  // since the job's start
  float clock_mhz = 0;
  float power_w = 0;                                         // in truth where it is known
  std::optional<float> asked_mhz;                            // empty: the GPU's own choice
  std::optional<float> gpu_utilisation, memory_utilisation;  // as sensors show
  bool probing = false;
};

// Why, from this tick on.
struct Remark {
  std::uint32_t tick = 0;
  std::string text;
};

// What a job did, in truth unless said otherwise; start-up and probing included.
struct JobRecord {
  std::string app;
  std::string error;  // empty: it ended as it should
  Duration time{};
  double work = 0;                      // reference seconds; the work's own unit where it is real
  Joules energy{};                      // of the whole GPU
  std::optional<Joules> sensed_energy;  // by the GPU's own counter
  Duration probing{};                   // at clocks that were set to learn from
  int clock_changes = 0;                // writes that succeeded
  Duration policy_cpu{};                // what deciding cost
  Celsius temperature_at_start{};
  std::vector<Tick> ticks;
  std::vector<Remark> remarks;
};

// Which session of an experiment: everything under one policy on one GPU, once.
struct SessionKey {
  std::string chip;
  std::string cell;    // the stress, as text; empty: none
  std::string policy;  // its label
  int repetition = 0;

  auto operator<=>(const SessionKey&) const = default;
};

}  // namespace derate
