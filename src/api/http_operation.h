// Operations over HTTP: where each is, how its request is read from a query, and with which status
// it is answered.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/operations.h"
#include "base/result.h"

namespace derate {

inline constexpr std::string_view kApiPrefix = "/v1/";

// "GET" of what changes nothing, with its fields in the query; else "POST", with them as JSON.
const char* http_method(const Operation& operation);
// "/v1/policy-set".
std::string http_path(const Operation& operation);
// Null: none that is served over HTTP is there.
const Operation* http_operation(std::string_view path);

// The request that a query is: numbers and flags are read, a list's values are separated by commas
// or named one by one. Errors: invalid_argument, naming the field and what is allowed.
Result<nlohmann::ordered_json> request_of_query(
    const Operation& operation, std::span<const std::pair<std::string, std::string>> query);
// The query that is read as that request, percent-encoded: "gpus=0&points=100".
std::string query_of_request(const nlohmann::ordered_json& request);

// 400 for a value, 403, 404, 422 for what the GPU or the configuration does not allow, 500 for
// files, 502 for the driver, 503 for what may go well later.
int http_status(Errc code);
// Of an answer: 200; 207 where some of what was asked was done and some was not; else that of its
// code.
int http_status(const nlohmann::ordered_json& answer);

// The whole of it as an OpenAPI 3.1 document. `version`: of Derate.
nlohmann::ordered_json openapi_json(const std::string& version);

}  // namespace derate
