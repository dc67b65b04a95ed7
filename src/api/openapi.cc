// The table of operations as an OpenAPI 3.1 document.
#include <fmt/format.h>

#include <map>
#include <set>

#include "api/http_operation.h"
#include "base/errc_word.h"
#include "base/json.h"

namespace derate {
namespace {

Json type_schema(const FieldInfo& field);

// An object of these fields. What a newer version adds to an answer is no error of its reader's.
Json fields_schema(const std::vector<FieldInfo>& fields, bool of_request) {
  Json out = {{"type", "object"}, {"properties", Json::object()}};
  for (const FieldInfo& field : fields) {
    Json schema = type_schema(field);
    schema["description"] = field.what + (field.unit.empty() ? "" : " [" + field.unit + "]");
    out["properties"][field.key] = std::move(schema);
    if (field.required) out["required"].push_back(field.key);
  }
  if (of_request) out["additionalProperties"] = false;
  return out;
}

Json type_schema(const FieldInfo& field) {
  constexpr const char* kTypes[] = {"string", "boolean", "integer", "number", "object"};
  Json one = {{"type", kTypes[static_cast<std::size_t>(field.type)]}};
  if (field.type == FieldType::object && !field.fields.empty())
    one = fields_schema(field.fields, false);
  if (field.lowest) one["minimum"] = *field.lowest;
  if (field.highest) one["maximum"] = *field.highest;
  const auto or_null = [&] {
    if (field.nullable) one["type"] = {one["type"], "null"};
  };
  or_null();
  if (!field.list) return one;
  one = {{"type", "array"}, {"items", std::move(one)}};
  or_null();
  return one;
}

Json answer_schema(const Operation& operation) {
  Json out = fields_schema(operation.answer, false);
  out["properties"]["ok"] = {{"type", "boolean"}};
  out["required"].push_back("ok");
  return out;
}

Json content_of(Json schema, const Json* example = nullptr) {
  Json media = {{"schema", std::move(schema)}};
  if (example != nullptr) media["example"] = *example;
  return {{"application/json", std::move(media)}};
}

// One response a status: several kinds of failure may share it.
Json responses_of(const Operation& operation) {
  std::map<int, std::set<std::string>> words;
  for (const Errc code : {Errc::invalid_argument, Errc::no_permission, Errc::busy})
    words[http_status(code)].insert(std::string(word_of(code)));
  for (const Errc code : operation.errors)
    words[http_status(code)].insert(std::string(word_of(code)));
  Json out = {
      {"200",
       {{"description", "It was done."}, {"content", content_of(answer_schema(operation))}}}};
  for (const auto& [status, codes] : words)
    out[std::to_string(status)] = {
        {"description", fmt::format("{}", fmt::join(codes, ", "))},
        {"content", content_of({{"$ref", "#/components/schemas/Failure"}})}};
  return out;
}

Json parameters_of(const Operation& operation, const Json& example) {
  Json out = Json::array();
  for (const FieldInfo& field : operation.fields) {
    Json one = {{"name", field.key},
                {"in", "query"},
                {"required", field.required},
                {"description", field.what},
                {"schema", type_schema(field)}};
    if (field.list) one["explode"] = false;
    if (example.contains(field.key)) one["example"] = example[field.key];
    out.push_back(std::move(one));
  }
  return out;
}

Json operation_json(const Operation& operation) {
  const Json example = parse_json(operation.example);
  Json out = {{"operationId", operation.name},
              {"summary", operation.what},
              {"x-role", to_string(operation.role)}};
  if (operation.changes == Changes::nothing)
    out["parameters"] = parameters_of(operation, example);
  else
    out["requestBody"] = {{"required", true},
                          {"content", content_of(fields_schema(operation.fields, true), &example)}};
  out["responses"] = responses_of(operation);
  return out;
}

Json failure_schema() {
  Json out = {{"type", "object"}, {"required", {"ok", "error"}}};
  out["properties"] = {{"ok", {{"const", false}}},
                       {"error", {{"type", "string"}, {"description", "a sentence"}}},
                       {"code", {{"type", "string"}, {"description", "the kind of failure"}}},
                       {"exit_code", {{"type", "integer"}, {"description", "of derate"}}}};
  return out;
}

}  // namespace

Json openapi_json(const std::string& version) {
  Json out = {{"openapi", "3.1.0"}};
  out["info"] = {{"title", "Derate"},
                 {"version", version},
                 {"description",
                  "What can be asked of derated on its unix socket, and through "
                  "derate-agent (docs/api.md)."}};
  out["servers"] = {{{"url", "http://localhost"}, {"description", "/run/derate/api.sock"}}};
  out["paths"] = Json::object();
  for (const Operation& each : operations()) {
    if (!each.http) continue;
    const char* method = each.changes == Changes::nothing ? "get" : "post";
    out["paths"][http_path(each)][method] = operation_json(each);
  }
  out["components"]["schemas"]["Failure"] = failure_schema();
  out["components"]["securitySchemes"]["token"] = {{"type", "http"}, {"scheme", "bearer"}};
  out["security"] = {Json::object(), {{"token", Json::array()}}};
  return out;
}

}  // namespace derate
