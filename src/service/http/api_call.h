// Asking the daemon over its HTTP API: what the command's verbs do.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api/requests.h"
#include "base/clock.h"
#include "base/result.h"
#include "service/http/http_call.h"

namespace derate {

// "GET /v1/history?from=now-6h" for what changes nothing; else a POST of the fields as JSON.
HttpAsk api_request(const AnyRequest& request);

// The first of api_sockets() where somebody listens who may be believed: root or oneself. Errors:
// not_found when no daemon runs, no_permission when only another user listens.
Result<std::string> find_api();

// Its answer, whatever it says. Where this user has asked too often it asks again each second.
// Errors: as http_call() has them.
Result<HttpResponse> api_call(const std::string& socket, const AnyRequest& request,
                              Duration patience);

// The answer's fields, of the daemon that serves `socket`. Errors: those that it tells, by their
// code; not_found when it is gone, no_permission, io, gpu_stuck where it does not answer.
Result<nlohmann::ordered_json> api_ask(const std::string& socket, const AnyRequest& request,
                                       Duration patience = std::chrono::seconds(30));
// Of the one that find_api() finds; its errors, too.
Result<nlohmann::ordered_json> api_ask(const AnyRequest& request);

// What a response says. Errors: as above.
Result<nlohmann::ordered_json> api_answer(const HttpResponse& response);

}  // namespace derate
