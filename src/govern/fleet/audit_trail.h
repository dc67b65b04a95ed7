// A program's own entries in the audit log.
#pragma once

#include <optional>
#include <string>

#include "base/log.h"
#include "store/audit.h"

namespace derate {

class AuditTrail {
 public:
  // `who`: of the entries, "derated"; the number of the process is added. Without a file, as for
  // simulated GPUs, nothing is kept.
  AuditTrail(std::optional<AuditLog> file, std::string who, Log log)
      : file_(std::move(file)), who_(std::move(who)), log_(std::move(log)) {}

  // One that cannot be written is logged once, until it can be.
  void add(AuditEntry entry);

 private:
  std::optional<AuditLog> file_;
  std::string who_;
  Log log_;
  bool failed_ = false;
};

}  // namespace derate
