// The audit log: a line of JSON for every write to a domain, with its time, writer, knob, value
// before and after, and reason. Appended to, never rewritten; one older file is kept.
#pragma once

#include <string>

#include "base/result.h"
#include "base/units.h"
#include "core/domain.h"

namespace derate {

struct AuditEntry {
  WallTime time{};
  std::string who;  // "derated, pid 17"
  DomainId domain;  // empty: it is about none, as a token
  std::string
      what;  // the knob that was written ("lock", "power limit"); "release", "restore", "yield"
  std::string before;  // "1530 MHz"; empty where it is not known
  std::string after;   // empty when it failed
  std::string why;     // the decision's reason, or the request's
  std::string error;   // empty: it succeeded
};

class AuditLog {
 public:
  static constexpr std::size_t kLargest = std::size_t{16} << 20;

  explicit AuditLog(std::string path, std::size_t largest = kLargest)
      : path_(std::move(path)), largest_(largest) {}

  // Errors: no_permission, io; the entry is lost then, and the next one is tried all the same.
  Result<void> append(const AuditEntry& entry) const;

 private:
  std::string path_;
  std::size_t largest_;
};

// Without a line end.
std::string audit_line(const AuditEntry& entry);

}  // namespace derate
