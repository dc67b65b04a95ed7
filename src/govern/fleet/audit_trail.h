// A program's own entries in the audit log.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "store/audit.h"

namespace derate {

class AuditTrail {
 public:
  using Tell = std::function<void(const std::string& text)>;

  // `who`: of the entries, "derated"; the number of the process is added. Without a log, as for
  // simulated GPUs, nothing is kept.
  AuditTrail(std::optional<AuditLog> log, std::string who, Tell tell)
      : log_(std::move(log)), who_(std::move(who)), tell_(std::move(tell)) {}

  // A log that cannot be written is told once, until it can be.
  void add(AuditEntry entry);

 private:
  std::optional<AuditLog> log_;
  std::string who_;
  Tell tell_;
  bool failed_ = false;
};

}  // namespace derate
