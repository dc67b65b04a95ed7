// The HTTP API of derated, put together: status, attribution, history, health, metrics and the
// stream of events.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "service/http/api_server.h"
#include "worker.h"

namespace derate::cli {

struct ApiParts {
  Worker& worker;
  Clock& clock;
  Log log;
  CallerShares shares = {};
  std::shared_ptr<SocketCloser> closer = nullptr;
};

// Listens on api_socket(). What `parts` refers to outlives it. Errors: busy, no_permission, io.
Result<std::unique_ptr<ApiServer>> serve_api(const ApiParts& parts);

}  // namespace derate::cli
