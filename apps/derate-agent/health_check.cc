#include "health_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printing.h"
#include "duties.h"

namespace derate::agent {

Result<HealthCheck> check_health(const std::vector<std::string>& sockets, const std::string& path,
                                 Duration patience) {
  if (path != "/livez" && path != "/readyz")
    return Error{Errc::invalid_argument,
                 fmt::format("--check '{}': allowed are /livez and /readyz", path)};
  const auto answer = call_derated(sockets, {.target = path, .most_bytes = 64 << 10}, patience);
  if (!answer.ok()) return HealthCheck{.line = printing_text(answer.error().message)};
  const std::string& body = answer->body;
  return HealthCheck{.is_good = answer->status == 200,
                     .line = printing_text(body.substr(0, body.find('\n')))};
}

}  // namespace derate::agent
