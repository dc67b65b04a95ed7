// Percent-encoding of texts in URLs, and its inverse.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace derate {

// "a b&c" as it stands in a query (RFC 3986): "a%20b%26c".
std::string percent_encoded(std::string_view text);
// Its inverse, of any text: what needs no escape may stand as it is. Empty: an escape is wrong.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace derate
