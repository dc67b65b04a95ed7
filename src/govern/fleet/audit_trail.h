// A program's own entries in the audit log.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "store/audit.h"

namespace derate {

class AuditTrail {
 public:
  using OnEntry = std::function<void(const AuditEntry&)>;

  // `who`: of the entries, "derated"; the number of the process is added. Without a file, as for
  // simulated GPUs, nothing is kept. `on_entry` sees each all the same.
  AuditTrail(std::optional<AuditLog> file, std::string who, Log log, OnEntry on_entry = {})
      : file_(std::move(file)),
        who_(std::move(who)),
        log_(std::move(log)),
        on_entry_(std::move(on_entry)) {}

  // One that cannot be written is logged once, until it can be.
  void add(AuditEntry entry);

 private:
  std::optional<AuditLog> file_;
  std::string who_;
  Log log_;
  OnEntry on_entry_;
  bool failed_ = false;
};

}  // namespace derate
