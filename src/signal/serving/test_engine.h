// Metrics of an engine for tests: each look adds what has happened since the one before.
#pragma once

#include <memory>

#include "core/serving_state.h"

namespace derate {

struct TestEngine {
  ServingState state = {.running = 0,
                        .waiting = 0,
                        .prompt_tokens = 0,
                        .generated_tokens = 0,
                        .steps = 0,
                        .between_tokens = LatencyHistogram{{0.025, 0.05, 0.1}, {0, 0, 0, 0}},
                        .first_token = LatencyHistogram{{0.1, 1}, {0, 0, 0}}};

  // So many steps of `running` requests, each of that length.
  void decode(double steps, double running, double step_s) {
    state.running = running;
    *state.steps += steps;
    *state.generated_tokens += steps * running;
    auto& h = *state.between_tokens;
    for (std::size_t i = 0; i < h.counts.size(); ++i)
      if (i >= h.edges_s.size() || step_s <= h.edges_s[i]) h.counts[i] += steps * running;
    h.sum_s += steps * running * step_s;
  }
  void read_prompt(double tokens, double first_token_s) {
    *state.steps += 1;
    *state.prompt_tokens += tokens;
    auto& h = *state.first_token;
    for (std::size_t i = 0; i < h.counts.size(); ++i)
      if (i >= h.edges_s.size() || first_token_s <= h.edges_s[i]) h.counts[i] += 1;
    h.sum_s += first_token_s;
  }
  SharedServingState look(Instant time) {
    state.time = time;
    return std::make_shared<ServingState>(state);
  }
};

}  // namespace derate
