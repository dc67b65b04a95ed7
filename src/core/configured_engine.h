// The metrics of an engine that serves a language model, as the configuration names them.
#pragma once

#include <string>

namespace derate {

// The metrics of an engine that Derate does not know by itself; empty: it does not show that one.
struct ConfiguredEngine {
  std::string model_label = "model_name";
  std::string between_tokens, first_token;  // histograms, without _bucket
  std::string running, waiting, kv_share, prompt_tokens, generated_tokens, steps;

  bool is_named() const { return !between_tokens.empty() || !running.empty(); }
  bool operator==(const ConfiguredEngine&) const = default;
};

}  // namespace derate
