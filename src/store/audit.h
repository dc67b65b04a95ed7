// The audit log: a line of JSON for every write to a domain, with its time, writer, knob, value
// before and after, and reason. Appended to, never rewritten; one older file is kept.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "base/write_queue.h"
#include "core/domain.h"

namespace derate {

struct AuditEntry {
  WallTime time{};
  std::string who;     // "derated, pid 17"
  DomainId domain;     // empty: it is about none, as a token
  std::string what;    // the knob that was written ("lock", "power limit"); "unlock", "release",
                       // "restore", "yield"
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

  // The same file, written on its own thread: append() never waits for the disk. Copies share the
  // thread. The last copy waits for the pending entries, for a second at most.
  static AuditLog on_a_thread(std::string path, std::size_t largest = kLargest);
  static constexpr std::size_t kMostWaiting = 1024;  // further entries are dropped

  // Errors: no_permission, io. The entry is then dropped, and the next one is tried. With a thread,
  // the error is that of an earlier entry, or that too many entries wait.
  Result<void> append(const AuditEntry& entry) const;

 private:
  std::string path_;
  std::size_t largest_;
  std::shared_ptr<WriteQueue> queue_;  // null: entries are written at once
};

// Without a line end.
std::string audit_line(const AuditEntry& entry);

}  // namespace derate
