// The record of one tick of one GPU. Replaying records through the same policy gives the same
// decisions. This serves golden tests and shows afterwards why a clock was chosen.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "core/actuation.h"
#include "core/decision.h"
#include "core/envelope_bound.h"
#include "core/estimate.h"
#include "core/sample.h"
#include "core/saving.h"

namespace derate {

struct Record {
  Instant time{};
  int gpu = 0;                   // position in the governor's list
  std::optional<Sample> sample;  // empty when the read failed; `sample_error` says why
  std::string sample_error;
  std::optional<Errc> sample_failure;  // of which kind that is
  Estimate estimate;
  Decision decision;
  Clamped clamped;
  Actuation actuation;
  // What has come to the policy's estimate since it was last asked: each second or so. Sums of it
  // may take back what was believed before.
  std::optional<Saving> saving;
  // Of GPUs in step (govern/group): the one whose readings decided for all; `estimate` is the GPU's
  // own all the same.
  std::optional<int> pace = {};
  // The narrowest bounds that its clock had; where `clamped.rule` is `envelope`, they held the
  // decision. Both are set and contradict each other: `bounded_above` holds.
  std::optional<EnvelopeBound> bounded_below = {}, bounded_above = {};
};

}  // namespace derate
