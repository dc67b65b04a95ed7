#include "service/http/api_call.h"

#include <fmt/format.h>

#include "api/http_operation.h"
#include "base/json.h"
#include "config/paths.h"
#include "service/transport/daemon_call.h"

namespace derate {

HttpAsk api_request(const AnyRequest& request) {
  const Operation& operation = *find_operation(operation_of(request));
  HttpAsk out{.method = http_method(operation), .target = http_path(operation)};
  const Json fields = request_json(request);
  if (operation.changes != Changes::nothing) {
    out.fields.emplace_back("Content-Type", "application/json");
    out.body = json_text(fields);
  } else if (const std::string query = query_of_request(fields); !query.empty()) {
    out.target += "?" + query;
  }
  return out;
}

Result<Json> api_answer(const HttpResponse& response) {
  Json answer = parse_json(response.body);
  if (answer.is_object() && answer.contains("ok")) return daemon_answer(response.body);
  if (response.status == 200 && answer.is_object()) return answer;
  return Error{errc_of_status(response.status),
               fmt::format("the daemon answered with HTTP status {}", response.status)};
}

Result<std::string> find_api() {
  constexpr Duration kPatience = std::chrono::seconds(10);
  return first_answering(api_sockets(), [&](const std::string& socket) -> Result<void> {
    TRY(http_call(socket, api_request(GpuList{}), kPatience));
    return {};
  });
}

// What is refused so has not been done.
Result<HttpResponse> api_call(const std::string& socket, const AnyRequest& request,
                              Duration patience) {
  constexpr int kTooOften = 429;
  constexpr Duration kWait = std::chrono::seconds(1);
  const HttpAsk ask = api_request(request);
  SystemClock clock;
  const Instant end = clock.now() + patience;
  while (true) {
    auto answer = http_call(socket, ask, patience);
    if (!answer.ok() || answer->status != kTooOften || clock.now() + kWait > end) return answer;
    if (!clock.sleep_until(clock.now() + kWait)) return answer;
  }
}

Result<Json> api_ask(const std::string& socket, const AnyRequest& request, Duration patience) {
  return api_answer(TRY(api_call(socket, request, patience)));
}

Result<Json> api_ask(const AnyRequest& request) { return api_ask(TRY(find_api()), request); }

}  // namespace derate
