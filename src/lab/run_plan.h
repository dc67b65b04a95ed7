// Runs what of a plan has not been run: sessions side by side, each stored whole when it is done.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "lab/plan.h"
#include "store/lab_store.h"

namespace derate {

struct RunHooks {
  std::function<void(std::size_t done, std::size_t all)> progress = {};  // in jobs, now and then
  std::function<bool()> stop = {};  // asked now and then; true: no session is begun any more
};

// What a session may say and ask while it runs, from its own thread.
struct SessionHooks {
  std::function<void()> job_done;
  std::function<bool()> stopped;
};

// Runs one session of the plan. Empty: it was stopped, and nothing of it counts.
using SessionRunner =
    std::function<Result<std::optional<SessionRecord>>(std::size_t index, const SessionHooks&)>;
SessionRunner in_virtual_time(const Plan& plan);  // the plan outlives it

struct RunOutcome {
  std::size_t ran = 0, already_there = 0, all = 0;
  std::size_t failed_jobs = 0;
  Duration simulated{}, elapsed{};
  bool whole() const { return ran + already_there == all; }
};

// `threads`: sessions at a time, 0 for as many as there are cores.
// Errors: those of the sessions, and of the store; what was stored until then stays.
Result<RunOutcome> run_plan(const Plan& plan, const SessionRunner& runner, LabStore& store,
                            Clock& clock, unsigned threads = 0, const RunHooks& hooks = {});

}  // namespace derate
