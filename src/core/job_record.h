// The record of one job of an experiment: its account, and its ticks for a closer look.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/sample.h"
#include "core/saving.h"

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
  double work = 0;
  std::string work_unit;                // empty: reference seconds; "run": the command as a whole
  Joules energy{};                      // of the whole GPU
  std::optional<Joules> sensed_energy;  // by the GPU's own counter
  Duration probing{};                   // at clocks that were set to learn from
  int clock_changes = 0;                // writes that succeeded
  Duration policy_cpu{};                // what deciding cost
  std::optional<Saving> saving;         // as the policy estimates it; not stored
  std::optional<Celsius> temperature_at_start;
  std::optional<Megahertz> mean_clock;  // of its ticks
  Activity activity;                    // means of its ticks
  std::vector<Tick> ticks;
  std::vector<Remark> remarks;
};

// Each tick stands for the same time.
inline std::optional<Megahertz> mean_clock(std::span<const Tick> ticks) {
  double sum = 0;
  for (const Tick& tick : ticks) sum += tick.clock_mhz;
  if (ticks.empty()) return std::nullopt;
  return Megahertz(sum / static_cast<double>(ticks.size()));
}

// Which session of an experiment: everything under one policy on one GPU, once.
struct SessionKey {
  std::string chip;
  std::string cell;    // the stress, as text; empty: none
  std::string policy;  // its label
  int repetition = 0;

  auto operator<=>(const SessionKey&) const = default;
};

}  // namespace derate
