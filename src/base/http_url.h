// Addresses of HTTP servers: http://HOST[:PORT][/PATH].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace derate {

// "http://collector:4318/v1/metrics"
struct HttpTarget {
  std::string host;  // a name or an address; of IPv6 without its brackets
  std::uint16_t port = 80;
  std::string path = "/";

  // "collector:4318", as the field Host has it and errors name it.
  std::string authority() const;
  bool operator==(const HttpTarget&) const = default;
};
// Errors: invalid_argument for anything but http://HOST[:PORT][/PATH].
Result<HttpTarget> parse_http_url(std::string_view url);

// "127.0.0.1" of "127.0.0.1:9410", "[::1]" of "[::1]", in lower case; empty where it is no host
// with or without a port.
std::optional<std::string> host_of(std::string_view authority);

}  // namespace derate
