// Refusals, for the audit log: of each door and caller the first at once, with its reason, and the
// others as a number, so that the log grows by a bounded amount whatever comes.
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
  // So many rows are kept at a time; what is beyond counts as one. A row has one line each
  // kEvery: 16 lines in 10 minutes fill the log's 16 MiB in more than a month.
  static constexpr std::size_t kMost = 15;
  static constexpr Duration kEvery = std::chrono::minutes(10);

  RefusalBook(std::optional<AuditLog> audit, Log log)
      : audit_(std::move(audit), "derated", std::move(log)) {}

  // From any thread. `door`: the socket's name.
  void add(std::string_view door, const std::string& caller, const std::string& why);
  // On the loop's thread: writes what is due.
  void write(const Clock& clock);

 private:
  // A caller has one row at a door, however many reasons it gives.
  using Key = std::pair<std::string, std::string>;  // door, caller
  struct Row {
    std::string why;  // of the first that is not written
    std::uint64_t unwritten = 0;
    std::optional<Instant> written = {};
  };
  std::map<Key, Row> take_due(Instant now);

  std::mutex mutex_;  // of rows_
  std::map<Key, Row> rows_;
  AuditTrail audit_;
};

}  // namespace derate
