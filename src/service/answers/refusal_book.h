// Refused requests, for the audit log. For each door and caller, the first refusal is written at
// once with its reason, and later ones are counted. So the log grows by a bounded amount.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "govern/fleet/audit_trail.h"

namespace derate {

class RefusalBook {
 public:
  // Limit of rows; refusals of further callers share one more row. Each row writes at most one line
  // per kEvery: 16 lines in 10 minutes fill the log's 16 MiB in more than a month.
  static constexpr std::size_t kMost = 15;
  static constexpr Duration kEvery = std::chrono::minutes(10);

  RefusalBook(std::optional<AuditLog> audit, Log log)
      : audit_(std::move(audit), "derated", std::move(log)) {}

  // From any thread. `door`: the socket's name.
  void add(std::string_view door, const std::string& caller, const std::string& why);
  // Called on the loop's thread: writes the rows that are due.
  void write(const Clock& clock);

 private:
  // A caller has one row per door, for all its reasons.
  using Key = std::pair<std::string, std::string>;  // door, caller
  struct Row {
    std::string why;  // reason of the first unwritten refusal
    std::uint64_t unwritten = 0;
    std::optional<Instant> written = {};
  };
  std::map<Key, Row> take_due(Instant now);

  std::mutex mutex_;  // of rows_
  std::map<Key, Row> rows_;
  AuditTrail audit_;
};

}  // namespace derate
