// A GPU that a program has opened, with its assignment, its leftovers and its last record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "core/envelope.h"
#include "core/gpu_id.h"
#include "core/record.h"
#include "device/telemetry_source.h"
#include "govern/actuator.h"
#include "govern/fleet/assignments.h"
#include "govern/fleet/open_gpu.h"
#include "govern/fleet/promise_watch.h"

namespace derate {

// What an earlier process, or an earlier source of this one, left to be restored on a GPU.
struct Leftover {
  std::optional<JournalHandle> owed;     // to what the GPU must be restored; empty: to nothing
  std::string failure;                   // why it is not restored
  std::optional<Instant> restore_again;  // then it is tried again
  std::string left_alone;                // why a journal of another process is left; empty: none is
  bool left_by_nobody = false;           // no governor is known that would restore it
  std::optional<Instant> look_again;
  // A sentence if the GPU's journal cannot be used and its settings are not known; otherwise empty.
  std::string lost;
};

struct ManagedGpu {
  OpenGpu open;
  // Which this is, of all that were ever opened: another source has another number, were it at the
  // same address.
  std::uint64_t opening = 0;
  std::optional<Assignment> assigned;  // by what it is to be governed; empty: it is observed
  bool governed = false;               // by `assigned`
  std::optional<Envelope> envelope;    // the clocks that its policy may set
  std::optional<Error> trouble;        // why it is not governed as assigned
  std::optional<Instant> lease_again;  // then a lease that another has is tried again
  Leftover leftover;
  std::string promise_from;           // who promised what its work was; empty: its policy
  PromiseWatch promise;               // whether the promise to its work is kept
  std::optional<Record> last;         // of the last round that ticked it
  std::optional<Saving> saving = {};  // since it was opened, by policies that can tell
  std::optional<Instant> expired_since, reopen_at;  // a GPU that no longer answers
  bool modes_changed = false;                       // by other tools: its models hold no more
  // It was just opened anew: changes before this time do not count.
  Instant modes_held = Instant::min();
  OpeningPoll reopening;

  const GpuId& id() const { return open.source->capability().id; }
  const std::string& uuid() const { return id().uuid; }
  DomainId domain() const { return gpu_domain(uuid()); }
  bool tuned() const { return assigned && assigned->tuned; }
  // By which policy it is governed now; null: by none.
  const PolicyAssignment* policy() const {
    return governed && assigned->policy ? &*assigned->policy : nullptr;
  }
  // Its name; "tune" where a job's tuning governs the GPU; empty: it is observed.
  std::string policy_name() const {
    if (!governed) return {};
    return tuned() ? "tune" : assigned->policy->policy.info->name;
  }
};

}  // namespace derate
