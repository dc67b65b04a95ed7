// The leases that a governor holds: one a domain, from before its first write until the domain is
// restored, and during a pause.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "core/domain.h"

namespace derate {

// How leases are taken and released: through the guard (govern/guard.h), which holds them, too.
struct LeaseHooks {
  // Empty where no lease is needed: no other process can govern simulated GPUs.
  std::function<Result<UniqueFd>(const DomainId& domain)> take;
  std::function<void(const DomainId& domain)> release = [](const DomainId&) {};
  // The domains whose lease another process holds, since the lease's file was removed.
  std::function<std::vector<DomainId>()> take_lost = [] { return std::vector<DomainId>(); };
};

class LeaseKeeper {
 public:
  explicit LeaseKeeper(LeaseHooks hooks) : hooks_(std::move(hooks)) {}

  bool holds(const DomainId& domain) const { return held_.contains(domain); }
  // Takes the lease unless it is held already. Errors: those of take_lease().
  Result<void> take(const DomainId& domain);
  // Releases the lease if it is held.
  void release(const DomainId& domain);
  // The held domains whose lease another process holds by now: the caller restores and releases
  // them.
  std::vector<DomainId> lost() const;

 private:
  LeaseHooks hooks_;
  std::map<DomainId, UniqueFd> held_;
};

}  // namespace derate
