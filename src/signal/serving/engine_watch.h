// Changes of an engine's metrics between two looks.
#pragma once

#include <optional>
#include <vector>

#include "core/serving_state.h"

namespace derate {

struct EngineDelta {
  Duration span{};  // between the looks
  double prompt_tokens = 0, generated_tokens = 0, first_tokens = 0;
  double steps = 0;          // of an engine that does not count them: a token of each that runs
  double first_token_s = 0;  // sum
  // Intervals between tokens, by upper edge; the last beyond all edges.
  std::vector<double> edges_s, between_tokens;
  double intervals = 0, intervals_s = 0;  // of all of them, their number and their sum

  std::optional<double> mean_interval_s() const {
    return intervals > 0 ? std::optional(intervals_s / intervals) : std::nullopt;
  }
};

// Another run, or a count that fell: what was counted between the two looks is not known.
bool began_anew(const ServingState& now, const ServingState& before);

class EngineWatch {
 public:
  // A look; null or the same as before: nothing new. Empty: nothing is known of the time since the
  // look before, as after a start of the engine.
  std::optional<EngineDelta> look(const SharedServingState& state);
  const ServingState* state() const { return last_.get(); }

 private:
  SharedServingState last_;
};

}  // namespace derate
