// Judges the readings of one GPU: whether they are fresh, and whether the GPU is idle or hot.
#pragma once

#include <optional>

#include "core/estimate.h"
#include "govern/safety.h"
#include "telemetry/sampler.h"

namespace derate {

class Estimator {
 public:
  Estimator(const SafetyRules& rules, const Capability& capability);

  // `locked`: the clock that is locked now, if any.
  Estimate estimate(const Reading& reading, const WorkStatus& work, std::optional<Megahertz> locked,
                    Instant now);

 private:
  bool launching(const WorkStatus& work, Instant now);
  bool idle(const Estimate& estimate);
  bool hot(const Sample& sample);

  SafetyRules rules_;
  std::optional<Celsius> hot_above_;  // the thermal rule's limit
  bool hot_ = false;
  std::optional<Instant> idle_since_;
  std::optional<Progress> last_launches_;  // when their count grew last
};

}  // namespace derate
