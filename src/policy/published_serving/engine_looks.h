// The metrics of an engine over the last seconds, as differences between looks.
#pragma once

#include <deque>
#include <optional>

#include "signal/serving/engine_watch.h"

namespace derate {

class EngineLooks {
 public:
  explicit EngineLooks(Duration kept) : kept_(kept) {}

  // Empty: there is nothing new, or nothing that it could be compared with.
  std::optional<EngineDelta> look(const SharedServingState& state);
  // Whether the newest look is at most 2 s old (assumed).
  bool fresh(Instant now) const;
  // Only after a look at something.
  const ServingState& newest() const { return *looks_.back(); }
  // Of the intervals between tokens in the time that is kept, as Prometheus' histogram_quantile:
  // evenly spread within their bucket, the last edge for those beyond it. Empty: there is none.
  std::optional<double> quantile(double share) const;

 private:
  Duration kept_;
  EngineWatch watch_;
  std::deque<SharedServingState> looks_;  // of one run of the engine
};

}  // namespace derate
