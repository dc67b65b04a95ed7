// What admins ask of tokens (docs/api-roles.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "api/requests.h"
#include "base/clock.h"
#include "govern/fleet/audit_trail.h"
#include "service/answers/command_router.h"
#include "service/answers/queued_commands.h"
#include "service/answers/token_book.h"

namespace derate {

class TokenService {
 public:
  using Json = nlohmann::ordered_json;

  // Changes are done with `commands`, and kept in the audit log; what `admins` list is answered at
  // once. All outlive it.
  TokenService(Clock& clock, TokenBook& book, QueuedCommands& commands, CommandRouter& admins,
               std::optional<AuditLog> audit, Log log);
  TokenService(const TokenService&) = delete;
  TokenService& operator=(const TokenService&) = delete;

  Result<Json> create(const TokenCreate& request, const std::string& who);
  Result<Json> revoke(const TokenRevoke& request, const std::string& who);
  Result<Json> list() const;

 private:
  Clock& clock_;
  TokenBook& book_;
  AuditTrail audit_;
};

}  // namespace derate
