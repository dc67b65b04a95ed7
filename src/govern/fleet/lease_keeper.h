// The leases that a governor holds: one a GPU, from before its first write until the GPU is
// restored, and during a pause.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

// How leases are taken and released: through the guard (govern/guard.h), which holds them, too.
struct LeaseHooks {
  // Empty where no lease is needed: no other process can govern simulated GPUs.
  std::function<Result<UniqueFd>(const std::string& uuid)> take;
  std::function<void(const std::string& uuid)> release = [](const std::string&) {};
};

class LeaseKeeper {
 public:
  explicit LeaseKeeper(LeaseHooks hooks) : hooks_(std::move(hooks)) {}

  bool holds(const std::string& uuid) const { return held_.contains(uuid); }
  // Takes the lease unless it is held already. Errors: those of take_lease().
  Result<void> take(const std::string& uuid);
  // Releases the lease if it is held.
  void release(const std::string& uuid);

 private:
  LeaseHooks hooks_;
  std::map<std::string, UniqueFd> held_;  // by UUID
};

}  // namespace derate
