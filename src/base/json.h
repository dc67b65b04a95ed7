// JSON as everything here reads and writes it: objects keep their order, and reading never throws.
// The parser is compiled once, in json.cc: it is the dearest template of all.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace derate {

using Json = nlohmann::ordered_json;

// Null when the text is not one JSON value.
Json parse_json(std::string_view text);

// What an object has under the key: nothing, "" or false where that is missing or of another type,
// or `json` is no object.
std::optional<double> number_at(const Json& json, const char* key);
std::string text_at(const Json& json, const char* key);
bool true_at(const Json& json, const char* key);

// Null where there is none; of a quantity (base/units.h) its number.
template <class T>
Json or_null(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (requires { value->value(); })
    return value->value();
  else
    return *value;
}

// On one line, or indented by that many blanks. What is not UTF-8 is replaced.
std::string json_text(const Json& json, int indent = -1);

}  // namespace derate
