// The cache of models learned of work, kept for its next run: by chip, found again by what its
// counters show at the highest clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"

namespace derate {

// Raised when what is kept means something else than before (other coefficients, signals, units):
// models of another form are never given. Form 1 had references that may have been read at other
// clocks than the highest.
inline constexpr int kModelForm = 2;

// Coefficients and their covariance, the lower half of it by rows.
struct BeliefModel {
  std::vector<double> mean, covariance;

  bool operator==(const BeliefModel&) const = default;
};

// One phase of work.
struct PhaseModel {
  std::string chip;
  std::vector<std::string> signals;  // by name, in the order of the belief
  Megahertz highest{};               // clock; for who keeps it: every x is relative to it
  double reference_x = 0;            // log of the highest clock over the one that was reached
  double gpu_utilisation = 0;        // there
  BeliefModel progress, with_power, power_curve;
  bool saturated = false;  // its memory counter
  Duration age{};          // since it was last kept; for who recalls it
  std::int64_t id = 0;     // the cache's; 0: not kept yet

  bool operator==(const PhaseModel&) const = default;
};

// Policies remember and recall; where it is kept is for who makes them.
class ModelCache {
 public:
  virtual ~ModelCache() = default;
  // Newest first.
  virtual std::vector<PhaseModel> recall(const std::string& chip) = 0;
  // In place of the one of the same id. Gives the id; 0 when it could not be kept.
  virtual std::int64_t keep(const PhaseModel& model) = 0;
};

}  // namespace derate
