// derate-agent --check: derated's health once, as a probe of Kubernetes (exec) or a script wants
// it.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace derate::agent {

struct HealthCheck {
  bool is_good = false;  // status 200
  std::string line;      // the answer's first line, or why there is none; it prints
};

// Queries `path` at the first of derated's sockets on which somebody listens. Errors:
// invalid_argument for any path but /livez and /readyz.
Result<HealthCheck> check_health(const std::vector<std::string>& sockets, const std::string& path,
                                 Duration patience = std::chrono::seconds(3));

}  // namespace derate::agent
