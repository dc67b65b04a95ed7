#include "govern/fleet/audit_trail.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace derate {

void AuditTrail::add(AuditEntry entry) {
  if (!log_) return;
  entry.who = fmt::format("{}, pid {}", who_, ::getpid());
  const auto kept = log_->append(entry);
  if (!std::exchange(failed_, !kept.ok()) && failed_)
    tell_("no audit log: " + kept.error().message);
}

}  // namespace derate
