// The last minutes of an engine that serves a language model: latencies, tokens, late tokens, and
// energy by phases.
#pragma once

#include <deque>
#include <optional>

#include "api/service_requests.h"
#include "base/units.h"
#include "core/serving_state.h"
#include "policy/slo/clock_charge.h"
#include "policy/slo/violation_bound.h"
#include "signal/serving/engine_watch.h"
#include "signal/serving/phase_energy.h"

namespace derate {

// The upper edge of the bucket that has the quantile, of counts between `before` and `now` with the
// same edges; before null: of all. Empty: it lies above all edges, or less than one count is
// expected beyond it.
std::optional<double> quantile_at_most(const LatencyHistogram* before, const LatencyHistogram& now,
                                       double quantile);

class ServiceWindow {
 public:
  static constexpr Duration kLength = std::chrono::minutes(10);
  static constexpr Duration kEvery = std::chrono::seconds(10);  // points that are kept
  static constexpr double kAlpha = 0.01;                        // of the bound

  // `most_running`: tokens that a step can have at most; empty: not known, and there is no bound.
  explicit ServiceWindow(std::optional<double> most_running);

  // The share of the highest clock that its slowest GPU runs at.
  void take_clock(Instant time, double share) { clocks_.add(time, share); }
  // New metrics. `edge_s`: the edge of the promise; empty: nothing is late. `energy`: of its GPUs
  // since some moment; empty: not known. If the engine began anew, so does this.
  void take(const SharedServingState& state, std::optional<double> edge_s,
            std::optional<Joules> energy);
  // Tokens between the first reading and the newest; 0 where there is no edge.
  LateTokens late() const;
  // Empty: there are no two readings of one run.
  std::optional<ServiceFigures> figures() const;

 private:
  struct Point {
    SharedServingState state;
    LateTokens late;  // since the first point
    std::optional<Joules> energy;
    PhaseEnergies phases;  // since the first point
  };

  void look(const EngineDelta& delta, const Point& before, const Point& now);

  ClockHistory clocks_;
  EngineWatch engine_;
  std::optional<ViolationBound> bound_;
  PhaseEnergy phases_;
  std::deque<Point> points_;  // kEvery apart; the last is the newest
};

}  // namespace derate
