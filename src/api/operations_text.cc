#include "api/operations_text.h"

#include <fmt/format.h>

#include "api/http_operation.h"
#include "base/errc_word.h"
#include "base/json.h"

namespace derate {
namespace {

const char* to_string(Changes changes) {
  constexpr const char* kWords[] = {"nothing", "own", "gpus", "all"};
  return kWords[static_cast<std::size_t>(changes)];
}

std::string type_and_range(const FieldInfo& field) {
  std::string out = describe_type(field);
  if (!field.unit.empty()) out += ", " + field.unit;
  if (field.lowest && field.highest)
    out += fmt::format(", {} to {}", *field.lowest, *field.highest);
  else if (field.lowest)
    out += fmt::format(", at least {}", *field.lowest);
  else if (field.highest)
    out += fmt::format(", at most {}", *field.highest);
  return out;
}

Json field_json(const FieldInfo& field) {
  Json out = {{"name", field.key}, {"what", field.what}, {"type", describe_type(field)}};
  if (field.required) out["required"] = true;
  if (field.nullable) out["nullable"] = true;
  if (!field.unit.empty()) out["unit"] = field.unit;
  if (field.lowest) out["lowest"] = *field.lowest;
  if (field.highest) out["highest"] = *field.highest;
  if (!field.absent.empty()) out["absent"] = field.absent;
  for (const FieldInfo& each : field.fields) out["fields"].push_back(field_json(each));
  return out;
}

Json fields_json(const std::vector<FieldInfo>& fields) {
  Json out = Json::array();
  for (const FieldInfo& field : fields) out.push_back(field_json(field));
  return out;
}

std::string field_rows(const Operation& operation, const std::string& name) {
  std::string out;
  for (const FieldInfo& field : operation.fields)
    out += fmt::format("| `{}` | `{}`{} | {} | {} |\n", name, field.key,
                       field.required ? "" : ", may be absent", type_and_range(field), field.what);
  return out;
}

}  // namespace

std::string operations_markdown(std::span<const Operation* const> operations) {
  std::string out = "| command | role | what it does |\n|---|---|---|\n";
  for (const Operation* each : operations)
    out += fmt::format("| `{}` | {} | {} |\n", each->name, to_string(each->role), each->what);
  out += "\n| command | field | type | what it is |\n|---|---|---|---|\n";
  for (const Operation* each : operations) out += field_rows(*each, each->name);
  return out;
}

std::string http_operations_markdown() {
  std::string out = "| request | role | what it does |\n|---|---|---|\n";
  std::string rows;
  for (const Operation& each : operations()) {
    if (!each.http) continue;
    out += fmt::format("| `{} {}` | {} | {} |\n", http_method(each), http_path(each),
                       to_string(each.role), each.what);
    rows += field_rows(each, http_path(each));
  }
  return out + "\n| path | field | type | what it is |\n|---|---|---|---|\n" + rows;
}

Json operations_json() {
  Json out = Json::array();
  for (const Operation& each : operations()) {
    Json errors = {word_of(Errc::invalid_argument), word_of(Errc::busy)};
    for (const Errc code : each.errors) errors.push_back(word_of(code));
    out.push_back({{"name", each.name},
                   {"role", to_string(each.role)},
                   {"changes", to_string(each.changes)},
                   {"what", each.what},
                   {"verb", each.verb},
                   {"longest_bytes", each.longest},
                   {"fields", fields_json(each.fields)},
                   {"answer", fields_json(each.answer)},
                   {"errors", std::move(errors)}});
  }
  return out;
}

}  // namespace derate
