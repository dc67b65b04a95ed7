// The leases that a governor holds: one a GPU, from before its first write until it owes the GPU
// nothing, and over a pause.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

// How leases are taken and released: through the guard (govern/guard.h), which holds them, too.
struct LeaseHooks {
  // Empty where none is needed: simulated GPUs are nobody else's.
  std::function<Result<UniqueFd>(const std::string& uuid)> take;
  std::function<void(const std::string& uuid)> release = [](const std::string&) {};
};

class LeaseKeeper {
 public:
  explicit LeaseKeeper(LeaseHooks hooks) : hooks_(std::move(hooks)) {}

  bool holds(const std::string& uuid) const { return held_.contains(uuid); }
  // Nothing happens where it is held. Errors: those of take_lease().
  Result<void> take(const std::string& uuid);
  // Nothing happens where it is not held.
  void release(const std::string& uuid);

 private:
  LeaseHooks hooks_;
  std::map<std::string, UniqueFd> held_;  // by UUID
};

}  // namespace derate
