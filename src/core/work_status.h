// The status of the work on a GPU from other sources than its counters: its own reports, and the
// promises to it. Each source reports to the governor; an empty field is not known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/progress.h"
#include "core/promise.h"
#include "core/serving_state.h"

namespace derate {

struct WorkStatus {
  std::optional<Progress> progress;  // empty: nobody counts it
  std::string phase;                 // as the application names it; empty: it does not
  std::string name;                  // of the work: process or job; empty: not known
  std::vector<Promise> promises;     // to its tenants; none of a kind: the policy's own
  // GPUs with the same number wait for each other (govern/group); empty: the GPU works alone.
  std::optional<std::uint64_t> step_group = {};
  // Others work on the same job, and it is not known whether they wait for each other: what this
  // GPU earns by a high clock the job may not have.
  bool may_wait = false;
  SharedServingState serving = {};  // of an engine that serves; null: it is none, or shows nothing
  std::string straggles = {};  // why it is slower than those that wait for it; empty: it is not

  bool operator==(const WorkStatus&) const = default;
};

// What the strictest of its tenants was promised of throughput.
inline std::optional<Promise> throughput_promise(const WorkStatus& work) {
  return strictest(work.promises, kThroughput);
}

}  // namespace derate
