#include "govern/fleet/audit_trail.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace derate {

void AuditTrail::add(AuditEntry entry) {
  if (on_entry_) on_entry_(entry);
  if (!file_) return;
  entry.who = fmt::format("{}, pid {}", who_, ::getpid());
  const auto kept = file_->append(entry);
  if (!std::exchange(failed_, !kept.ok()) && failed_)
    log_.error("no audit log: " + kept.error().message);
}

}  // namespace derate
