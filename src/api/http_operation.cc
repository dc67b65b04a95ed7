#include "api/http_operation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/number.h"
#include "base/percent.h"
#include "base/suggest.h"
#include "base/text.h"

namespace derate {
namespace {

Result<Json> value_of(const FieldInfo& field, const std::string& text) {
  const auto wanted = [&](const char* what) {
    return Error{Errc::invalid_argument,
                 fmt::format("{} '{}': allowed is {}", field.key, text, what)};
  };
  switch (field.type) {
    case FieldType::text:
      return Json(text);
    case FieldType::flag:
      if (text == "true" || text == "1") return Json(true);
      if (text == "false" || text == "0") return Json(false);
      return wanted("true or false");
    case FieldType::integer:
      if (const auto value = parse_number<std::int64_t>(text)) return Json(*value);
      return wanted("an integer");
    case FieldType::number:
      if (const auto value = parse_double(text)) return Json(*value);
      return wanted("a number");
    case FieldType::object:
      break;
  }
  return wanted("no query: it is an object");
}

std::string query_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

}  // namespace

const char* http_method(const Operation& operation) {
  return operation.changes == Changes::nothing ? "GET" : "POST";
}

std::string http_path(const Operation& operation) {
  return std::string(kApiPrefix) + operation.name;
}

const Operation* http_operation(std::string_view path) {
  if (!path.starts_with(kApiPrefix)) return nullptr;
  const Operation* found = find_operation(path.substr(kApiPrefix.size()));
  return found != nullptr && found->http ? found : nullptr;
}

Result<Json> request_of_query(const Operation& operation,
                              std::span<const std::pair<std::string, std::string>> query) {
  Json out = Json::object();
  for (const auto& part : query) {
    const std::string &key = part.first, &text = part.second;
    const auto field = std::find_if(operation.fields.begin(), operation.fields.end(),
                                    [&](const FieldInfo& each) { return each.key == key; });
    if (field == operation.fields.end()) {
      std::string known;
      for (const FieldInfo& each : operation.fields)
        known += (known.empty() ? "" : ", ") + each.key;
      return Error{
          Errc::invalid_argument,
          fmt::format("'{}' is no field of {}{}", key, operation.name,
                      known.empty() ? "; it has none" : choices(key, "; there are ", known))};
    }
    if (!field->list) {
      if (out.contains(key))
        return Error{Errc::invalid_argument, fmt::format("{}: is there twice", key)};
      out[key] = TRY(value_of(*field, text));
      continue;
    }
    for (const std::string_view each : split(text, ','))
      out[key].push_back(TRY(value_of(*field, std::string(each))));
  }
  return out;
}

std::string query_of_request(const Json& request) {
  std::string out;
  for (const auto& [key, value] : request.items()) {
    if (key == "command" || value.is_null()) continue;
    std::string text;
    if (value.is_array())
      for (const Json& each : value)
        text += (text.empty() ? "" : ",") + percent_encoded(query_text(each));
    else
      text = percent_encoded(query_text(value));
    out += (out.empty() ? "" : "&") + percent_encoded(key) + "=" + text;
  }
  return out;
}

int http_status(Errc code) {
  switch (code) {
    case Errc::invalid_argument:
      return 400;
    case Errc::no_permission:
      return 403;
    case Errc::not_found:
      return 404;
    case Errc::not_supported:
    case Errc::bad_config:
      return 422;
    case Errc::query_failed:
    case Errc::driver_not_loaded:
    case Errc::library_missing:
    case Errc::function_missing:
    case Errc::gpu_lost:
    case Errc::gpu_stuck:
      return 502;
    case Errc::busy:
    case Errc::interrupted:
      return 503;
    case Errc::bad_data:
    case Errc::io:
      break;
  }
  return 500;
}

int http_status(const Json& answer) {
  if (answer.value("ok", false)) return 200;
  constexpr int kSomeDone = 207;
  if (answer.contains("message")) return kSomeDone;
  return http_status(errc_of(answer.value("code", "")).value_or(Errc::io));
}

}  // namespace derate
