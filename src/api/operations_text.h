// The table of operations for people and for programs that are not ours.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "api/operations.h"

namespace derate {

// Two tables of Markdown: what each operation does and who may ask, and the fields of its request.
std::string operations_markdown(std::span<const Operation* const> operations);
// The same of what is served over HTTP, with methods and paths.
std::string http_operations_markdown();
// All that the table has, an object an operation.
nlohmann::ordered_json operations_json();

}  // namespace derate
