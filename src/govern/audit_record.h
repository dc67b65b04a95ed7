// Entries of the audit log, from the governor's records.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "core/record.h"
#include "store/audit.h"

namespace derate {

// The entry that a tick is worth, `who` left open: a write, one that failed, or a GPU that was left
// to another tool. `before`: the GPU's last record.
std::optional<AuditEntry> audit_of(const Record& record, const std::optional<Record>& before,
                                   const DomainId& domain, WallTime time);

// The entry of giving a GPU back. `restored` may be about many: an error that does not name
// this one is another's.
AuditEntry audit_of_restore(const Result<void>& restored, const DomainId& domain,
                            const std::string& why, WallTime time);

}  // namespace derate
