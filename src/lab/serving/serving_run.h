// An engine on a simulated GPU under given arrivals: latencies and energy of a run.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "device/sim/serving/serving_engine.h"

namespace derate {

inline constexpr double kServingWindowS = 600;

struct ServingSpec {
  const SimChip* chip = nullptr;
  ServingLaw law;
  EngineLimits limits;
  std::span<const ServingRequest> requests;  // outlive it
  double length_s = 3600;
};

struct ServingRun {
  std::vector<LatencyCounts> windows;  // between tokens, by kServingWindowS
  // Of each request, seconds to its first token; empty: not within the run.
  std::vector<std::optional<double>> first_token_s;
  double joules = 0, prompts_j = 0, idle_j = 0;  // idle: no step ran
  double generated_tokens = 0, prompt_tokens = 0;
  std::uint64_t finished = 0;
};

// The whole run at one clock, computed event by event.
ServingRun run_at_clock(const ServingSpec& spec, Megahertz clock);

// The counts between two looks.
LatencyCounts difference(const LatencyCounts& later, const LatencyCounts& before);

// Requests a second that the engine finishes at that clock when more come all the time.
double capacity(const ServingSpec& spec, Megahertz clock);

// Of all windows. Empty: there is no token.
std::optional<double> quantile_edge(const ServingRun& run, double quantile, double times);
// The share of tokens that took longer than that edge; 0 where there are none.
double violations(const LatencyCounts& window, double edge_s);

// A window of a run against the same window of the run at the top clock: violations that the clock
// caused (a share of tokens, at least 0), and first tokens that came more than twice as late.
struct CausedByClock {
  double violations = 0;
  int late_first_tokens = 0;
};
std::vector<CausedByClock> caused(const ServingSpec& spec, const ServingRun& run,
                                  const ServingRun& at_top, double edge_s);

}  // namespace derate
