// Attribution's input of one GPU in one tick: its energy and clock, and the activity of each
// tenant, be they MIG instances or processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/program_watts.h"
#include "core/sample.h"
#include "model/linear_belief.h"

namespace derate {

// No board draws it (docs/sensors.md).
inline constexpr double kMostBoardWatts = 10'000;

// What is known of a tenant's activity, best first.
enum class SignalKind : std::uint8_t {
  instance_activity,    // GPM of its MIG instance
  process_utilisation,  // the driver's integer time shares
  allocation,           // no signal: what it holds, not what it does
};

struct TenantTick {
  // Who: the same for life, and never used again for another: PIDs and GI ids are, so the start of
  // the process or the UUID is part of it (attrib/tick_source.h).
  std::string key;
  SignalKind signal = SignalKind::allocation;
  // What runs there, its processes: when it changes, what was learned of the tenant is doubted.
  std::string work;
  // Its part of the GPU's multiprocessors and memory slices, 0..1. A process without MIG has all.
  Fraction share{1}, memory_share{1};
  // `program` names the program and the user of a process. It is empty for an instance, and if the
  // program is not known. `expected_w` has the watts that this process, or earlier ones of its
  // program, drew while they had the GPU, at the highest clock (attrib/program_memory.h).
  std::optional<ProgramId> program;
  std::optional<Belief> expected_w;
  bool context = true;  // a process of it holds a compute context
  Activity activity;    // of its own units, 0..1 after cleaning; for instance_activity
  // Of the GPU's time, for process_utilisation.
  std::optional<Fraction> sm_utilisation, memory_utilisation;
};

struct AttribTick {
  Duration length{};  // since the tick before; missed ticks make a longer one
  // The energy counter's step. Empty when it cannot be told: the first tick, a counter that went
  // back. Never negative.
  std::optional<std::int64_t> energy_mj;
  std::optional<Megahertz> sm_clock;  // the mean, where it was watched in between
  std::optional<Celsius> temperature;
  Fraction capped{0};  // the part of it in which the power limit held the clock down
  Activity board;      // of the whole GPU
  std::vector<TenantTick> tenants;
  // The GPU works for several processes, and the driver has no samples: the split is not known.
  bool unsampled = false;
};

}  // namespace derate
