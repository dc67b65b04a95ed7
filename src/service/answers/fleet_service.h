// Operators' commands to the fleet: policy-set, policy-confirm, release, pause and resume, over the
// control socket (docs/control.md) and HTTP.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/requests.h"
#include "base/log.h"
#include "govern/fleet/audit_trail.h"
#include "govern/fleet/fleet.h"
#include "service/answers/command_router.h"

namespace derate {

class FleetService {
 public:
  using Json = nlohmann::ordered_json;

  // Adds its commands to `operators`. All outlive it. The audit log has the caller of each.
  FleetService(Clock& clock, Fleet& fleet, CommandRouter& operators, Log log,
               std::optional<AuditLog> audit = {});
  FleetService(const FleetService&) = delete;
  FleetService& operator=(const FleetService&) = delete;

  // The GPUs are closed for others to change them, until they are to be opened again.
  bool paused() const { return paused_; }
  // Who paused it last; empty: nobody has.
  const std::string& paused_by() const { return paused_by_; }

 private:
  Result<std::vector<std::size_t>> chosen(const std::string& gpus) const;
  Result<std::vector<std::size_t>> chosen_on_trial(const std::string& gpus) const;
  Result<Json> obey(const PolicySet& request, const std::string& who);
  Result<Json> obey(const PolicyConfirm& request, const std::string& who);
  Result<Json> obey(const Release& request, const std::string& who);
  Result<Json> obey(const Pause& request, const std::string& who);
  Result<Json> obey(const Resume& request, const std::string& who);

  Clock& clock_;
  Fleet& fleet_;
  AuditTrail audit_;
  bool paused_ = false;
  std::string paused_by_;
};

}  // namespace derate
