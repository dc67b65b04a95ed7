// An engine under a policy on a simulated GPU, in virtual time: the loop, the sensors and the
// metrics are those that a real one has.
#pragma once

#include <functional>

#include "core/promise.h"
#include "core/record.h"
#include "lab/serving/serving_run.h"
#include "policy/policy.h"

namespace derate {

struct GovernedServing {
  const PolicyInfo* policy = nullptr;
  ParamValues params;
  Megahertz highest, lowest;  // the envelope
  std::vector<Promise> promises;
  Duration scrape_every = std::chrono::milliseconds(250);
  std::uint64_t seed = 1;                                         // of sensors and latencies
  std::function<void(const Record&)> see = [](const Record&) {};  // each round's
};

// Errors: those of the policy's creation.
Result<ServingRun> run_governed(const ServingSpec& spec, const GovernedServing& how);

}  // namespace derate
