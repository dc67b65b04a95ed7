#include "govern/fleet/lease_keeper.h"

namespace derate {

Result<void> LeaseKeeper::take(const std::string& uuid) {
  if (holds(uuid) || !hooks_.take) return {};
  held_[uuid] = TRY(hooks_.take(uuid));
  return {};
}

void LeaseKeeper::release(const std::string& uuid) {
  if (held_.erase(uuid) > 0) hooks_.release(uuid);
}

}  // namespace derate
