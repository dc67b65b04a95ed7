#include "govern/fleet/lease_keeper.h"

namespace derate {

Result<void> LeaseKeeper::take(const DomainId& domain) {
  if (holds(domain) || !hooks_.take) return {};
  held_[domain] = TRY(hooks_.take(domain));
  return {};
}

void LeaseKeeper::release(const DomainId& domain) {
  if (held_.erase(domain) > 0) hooks_.release(domain);
}

std::vector<DomainId> LeaseKeeper::lost() const {
  std::vector<DomainId> out = hooks_.take_lost();
  std::erase_if(out, [this](const DomainId& domain) { return !holds(domain); });
  return out;
}

}  // namespace derate
