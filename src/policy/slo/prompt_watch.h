// A watch for prompts: whether an engine reads one now. Its metrics say so only when that is done,
// and its users' first tokens wait meanwhile; the GPU's power says so at once: reading draws more
// than decoding does (a fifth more on a V100; data/serving.csv), and much more than nothing.
#pragma once

#include <optional>

#include "core/estimate.h"
#include "policy/slo/step_times.h"
#include "signal/serving/engine_watch.h"

namespace derate {

class PromptWatch {
 public:
  explicit PromptWatch(double jump) : jump_(jump) {}
  // At each look at the GPU: whether a prompt is read. `locked`: the clock that is requested.
  bool look(const Estimate& estimate, Megahertz locked);
  // At each look at the metrics: what they say of the time between. `usual_s`: from token to token.
  void look(const EngineDelta& delta, const ServingState& state, std::optional<double> usual_s);
  // Requests wait, or the metrics are too old: a prompt will be read.
  void expect(Instant now);

 private:
  double jump_;  // of power, relative
  std::optional<Instant> since_;
  double read_ = 0;               // prompt tokens that the metrics have shown since
  std::optional<double> calm_w_;  // while no prompt is read, at `clock_`
  Megahertz clock_{};
};

}  // namespace derate
