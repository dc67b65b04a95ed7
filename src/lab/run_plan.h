// Runs what of a plan has not been run: sessions side by side, each stored whole when it is done.
#pragma once

#include <cstddef>
#include <functional>

#include "base/clock.h"
#include "lab/plan.h"
#include "store/lab_store.h"

namespace derate {

struct RunHooks {
  std::function<void(std::size_t done, std::size_t all)> progress = {};  // now and then
  std::function<bool()> stop = {};  // asked now and then; true: no session is begun any more
};

struct RunOutcome {
  std::size_t ran = 0, already_there = 0, all = 0;
  std::size_t failed_jobs = 0;
  Duration simulated{}, elapsed{};
  bool whole() const { return ran + already_there == all; }
};

// In place virtual. `threads`: 0 for as many as there are cores.
// Errors: those of a policy's creation, and of the store; what was stored until then stays.
Result<RunOutcome> run_plan(const Plan& plan, LabStore& store, Clock& clock, unsigned threads = 0,
                            const RunHooks& hooks = {});

}  // namespace derate
