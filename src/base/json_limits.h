// Reading JSON of strangers: what would cost too much is refused before anything is built of it.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace derate {

// An object of ours looks through all of its keys at each insert: many of them cost the square of
// their number.
struct JsonLimits {
  std::size_t keys = 32;  // of all objects in a text together
  std::size_t levels = 8;
};

// As parse_json() of json.h, but what passes the limits is refused as soon as it does, and so is a
// key that an object has twice: which of the two was meant cannot be told.
// Errors: invalid_argument, naming the limits or the key.
Result<nlohmann::ordered_json> parse_json(std::string_view text, const JsonLimits& limits);

}  // namespace derate
