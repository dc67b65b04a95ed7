// All of one tick of one GPU. Replaying a stream of records through the same policy gives the same
// decisions: a golden test, and the way to see afterwards why a clock was chosen.
#pragma once

#include <optional>
#include <string>

#include "core/actuation.h"
#include "core/decision.h"
#include "core/estimate.h"
#include "core/sample.h"

namespace derate {

struct Record {
  Instant time{};
  int gpu = 0;                   // position in the governor's list
  std::optional<Sample> sample;  // empty when the read failed; `sample_error` says why
  std::string sample_error;
  Estimate estimate;
  Decision decision;
  Clamped clamped;
  Actuation actuation;
};

}  // namespace derate
