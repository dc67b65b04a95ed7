// JSON as everything here reads and writes it: objects keep their order, and reading never throws.
// The parser is compiled once, in json.cc: it is the dearest template of all.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace derate {

using Json = nlohmann::ordered_json;

// Null when the text is not one JSON value.
Json parse_json(std::string_view text);

// On one line, or indented by that many blanks. What is not UTF-8 is replaced.
std::string json_text(const Json& json, int indent = -1);

}  // namespace derate
