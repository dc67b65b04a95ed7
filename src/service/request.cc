#include "service/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"

namespace derate {
namespace {

bool is_text(const Json& value) { return value.is_string(); }

bool is_of(FieldType type, const Json& value) {
  switch (type) {
    case FieldType::text:
      return value.is_string();
    case FieldType::flag:
      return value.is_boolean();
    case FieldType::number:
      return value.is_number();
    case FieldType::texts:
      return value.is_array() && std::all_of(value.begin(), value.end(), is_text);
    case FieldType::any:
      return true;
  }
  return false;
}

const char* describe(FieldType type) {
  switch (type) {
    case FieldType::text:
      return "a text";
    case FieldType::flag:
      return "true or false";
    case FieldType::number:
      return "a number";
    case FieldType::texts:
      return "a list of texts";
    case FieldType::any:
      return "a value";
  }
  return "";
}

}  // namespace

Result<void> check_fields(const Json& request, std::span<const Field> fields) {
  constexpr Field kCommand{"command", FieldType::text};
  for (const auto& [key, value] : request.items()) {
    auto field = std::find_if(fields.begin(), fields.end(),
                              [&, &name = key](const Field& one) { return name == one.name; });
    const Field* found = key == kCommand.name    ? &kCommand
                         : field != fields.end() ? &*field
                                                 : nullptr;
    if (found == nullptr) {
      std::string known = kCommand.name;
      for (const Field& one : fields) known += fmt::format(", {}", one.name);
      return Error{Errc::invalid_argument,
                   fmt::format("unknown field '{}'; there are {}", key, known)};
    }
    if (!is_of(found->type, value))
      return Error{Errc::invalid_argument,
                   fmt::format("{}: wanted {}", key, describe(found->type))};
  }
  for (const Field& one : fields)
    if (one.need == Need::required && !request.contains(one.name))
      return Error{Errc::invalid_argument,
                   fmt::format("{}: wanted {}, and it is not there", one.name, describe(one.type))};
  return {};
}

std::string answer_text(const Result<Json>& answer) {
  Json out = {{"ok", answer.ok()}};
  if (answer.ok()) {
    out.update(*answer);
  } else {
    out["error"] = answer.error().message;
    out["exit_code"] = exit_code_of(answer.error().code);
    out["code"] = word_of(answer.error().code);
  }
  return json_text(out);
}

}  // namespace derate
