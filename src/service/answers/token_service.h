// Answers admins' requests to create, list and revoke API tokens (docs/api-roles.md). A change is
// answered when it is on disk; changes that come meanwhile wait for it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "api/requests.h"
#include "base/clock.h"
#include "govern/fleet/audit_trail.h"
#include "service/answers/command_router.h"
#include "service/answers/token_book.h"

namespace derate {

class TokenService {
 public:
  using Json = nlohmann::ordered_json;

  // Adds its operations to `admins`; changes are kept in the audit log. All outlive it.
  TokenService(Clock& clock, TokenBook& book, CommandRouter& admins, std::optional<AuditLog> audit,
               Log log);
  ~TokenService();
  TokenService(const TokenService&) = delete;
  TokenService& operator=(const TokenService&) = delete;

  // Between two rounds: answers the change that has been written, and begins the next.
  void step();
  // At the end: the change that is under way is waited for as long as a store is; those that wait
  // for it are refused with that error.
  void refuse(const Error& why);

 private:
  // A change that has come, TokenCreate or TokenRevoke.
  struct Wanted {
    AnyRequest request;
    std::uint64_t connection = 0;
    std::string who;
  };
  // A change that is being written, and what is said of it then.
  struct Begun;
  Result<Begun> begin(const Wanted& wanted);
  Result<Begun> begin(const TokenCreate& request, const std::string& who);
  Result<Begun> begin(const TokenRevoke& request, const std::string& who);
  bool finish(Duration patience);
  Result<Json> list() const;

  Clock& clock_;
  TokenBook& book_;
  CommandRouter& admins_;
  AuditTrail audit_;
  std::deque<Wanted> waiting_;
  std::unique_ptr<Begun> begun_;  // null: none is under way
};

}  // namespace derate
