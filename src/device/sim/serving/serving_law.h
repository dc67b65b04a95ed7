// An engine that serves a language model: how long a step of it takes at a clock and what the GPU
// draws meanwhile. A step decodes one token of each running sequence and reads some prompt tokens.
// Fitted to measured tables (data/serving.csv); docs/serving-engines.md has equations and errors.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/sim/sim_chip.h"

namespace derate {

// The work of a step.
struct StepLoad {
  double sequences = 0;      // that decode a token each
  double kv_tokens = 0;      // of their contexts, together
  double prompt_tokens = 0;  // read in this step

  bool operator==(const StepLoad&) const = default;
};

// A step's time and power are sums over these parts.
enum class StepPart : std::uint8_t { host, weights, small, sequences, kv, prompt, prefill };
inline constexpr std::size_t kStepParts = 7;
using StepParts = std::array<double, kStepParts>;

struct ServingLaw {
  std::string chip, name, source;
  bool assumed = false;     // how it follows the clock was not measured
  Megahertz top;            // where the figures hold
  double memory_share = 0;  // of the time of sequences and their contexts: the memory clock's
  StepParts seconds{};      // of each part's unit at `top`: a step, a sequence, a token
  // Above the idle power while the part runs, at `top` and the lowest voltage.
  StepParts watts{};
  double voltage_exponent = 0;
  double kv_tokens = 0;  // room for contexts
  int step_tokens = 0;   // at most in a step, prompts and decoded tokens together
};

// Errors: bad_data naming FILE:LINE and the value.
Result<std::vector<ServingLaw>> parse_serving_laws(std::string_view csv, std::string_view file);
// The project's own, data/serving.csv.
const std::vector<ServingLaw>& serving_laws();
// Errors: not_found, naming the engines of that chip.
Result<ServingLaw> find_serving_law(const SimChip& chip, std::string_view name);

// The law at one clock of a chip, worked out.
class StepModel {
 public:
  StepModel(const ServingLaw& law, const SimChip& chip, Megahertz clock);

  double seconds(const StepLoad& load) const;
  // Mean power of the board over the step.
  Watts power(const StepLoad& load) const;
  // Joules of the step: what reading prompts draws, and all of it. A step that decodes nothing is
  // all of prompts; in others the parts that every step has are the decoding's.
  struct Energy {
    double prompts_j = 0, all_j = 0;
  };
  Energy energy(const StepLoad& load) const;

 private:
  StepParts parts(const StepLoad& load) const;

  StepParts seconds_{}, watts_{};
  double idle_w_;
};

}  // namespace derate
