// Policies that commands had set before a restart: a command's policy ends with its `derated`, and
// whoever set it has to learn that.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/event.h"
#include "govern/fleet/managed_gpu.h"
#include "store/history/history_store.h"

namespace derate {

class LostPolicies {
 public:
  // Of all that the history has of earlier processes, what does not govern its GPU now. GPUs that
  // are not here are left out. The event that says so; empty: nothing is lost.
  std::optional<Event> begin(const std::vector<CommandedPolicy>& before,
                             std::span<const ManagedGpu> gpus);
  // After each round. A GPU that a command or the configuration governs has lost nothing any more,
  // nor has one that a command has released: the event of the latter.
  std::optional<Event> take(const ManagedGpu& gpu);
  // The policy that the GPU has lost; empty: none.
  std::string of(const std::string& uuid) const;

 private:
  std::map<std::string, std::string> lost_;  // by UUID
};

}  // namespace derate
