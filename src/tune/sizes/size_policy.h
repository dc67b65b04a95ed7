// The choice of a recurring job's next batch size: pure functions of the trials, so that only the
// trials are stored.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "core/decision.h"
#include "tune/sizes/trial.h"

namespace derate {

struct SizeChoice {
  int batch_size = 0;
  bool exploring = false;
  // J; the try ends before its cost passes it. Empty: no bound.
  std::optional<double> stop_cost;
  Reason why;
};

// Whether a running try goes on.
struct SizeVerdict {
  bool stop = false;
  Reason why;
};

// `trials` by id, running ones included. Draws come from the seed and the number of trials, so that
// the same history gives the same choice.
using SizeChooser = SizeChoice(const SizeProblem& problem, std::span<const Trial> trials);
// Asked of a try that explores: when its profile is there (epoch_cost), and after every epoch.
// trials[running] is the one; `choice` is what was chosen for it.
using SizeWatcher = SizeVerdict(const SizeProblem& problem, std::span<const Trial> trials,
                                std::size_t running, const SizeChoice& choice);

// One row of the table: `derate tune job`, replay and docs are driven by it.
struct SizePolicyInfo {
  const char* name;
  const char* summary;
  SizeChooser* choose;
  SizeWatcher* watch;
};

// All of them, the default first.
std::span<const SizePolicyInfo> size_policies();
// Errors: not_found, naming those there are.
Result<const SizePolicyInfo*> find_size_policy(std::string_view name);

// J: the cheapest run so far, all of its tries counted; empty before one has reached the target.
std::optional<double> cheapest_run(std::span<const Trial> trials);

}  // namespace derate
