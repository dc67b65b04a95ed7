#include "base/http_url.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/number.h"
#include "base/printing.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr std::size_t kLongestShown = 200;

bool is_odd(char c) { return static_cast<unsigned char>(c) <= ' ' || (c & 0x80) != 0 || c == 0x7f; }

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

// A character of an IPv6 address, which may end with an IPv4 address.
bool is_of_address(char c) {
  return (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= '9') || c == ':' ||
         c == '.';
}

Error no_url(std::string_view url) {
  return {Errc::invalid_argument,
          fmt::format("'{}': allowed is http://HOST[:PORT][/PATH]; TLS is for a collector or proxy "
                      "on this machine",
                      log_text(url, kLongestShown))};
}

}  // namespace

std::string HttpTarget::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

std::optional<std::string> host_of(std::string_view authority) {
  std::string_view name = authority, port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos || end < 2) return std::nullopt;
    name = authority.substr(0, end + 1);
    port = authority.substr(end + 1);
    const std::string_view inner = name.substr(1, name.size() - 2);
    if (!std::all_of(inner.begin(), inner.end(), is_of_address)) return std::nullopt;
  } else {
    const std::size_t end = std::min(authority.find(':'), authority.size());
    name = authority.substr(0, end);
    port = authority.substr(end);
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_of_name)) return std::nullopt;
  }
  if (!port.empty() && !parse_number<std::uint16_t>(port.substr(1))) return std::nullopt;
  if (!port.empty() && port.front() != ':') return std::nullopt;
  return to_lower(name);
}

Result<HttpTarget> parse_http_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!to_lower(url).starts_with(kScheme)) return no_url(url);
  std::string_view rest = url.substr(kScheme.size());
  HttpTarget out;
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    out.path = rest.substr(slash);
    rest = rest.substr(0, slash);
  }
  if (out.path.find('#') != std::string::npos ||
      std::any_of(out.path.begin(), out.path.end(), is_odd))
    return no_url(url);
  const auto host = host_of(rest);
  if (!host) return no_url(url);
  if (rest.size() > host->size()) {  // ":PORT", which host_of() has looked at
    const auto port = parse_integer(rest.substr(host->size() + 1));
    if (!port || *port < 1) return no_url(url);
    out.port = static_cast<std::uint16_t>(*port);
  }
  out.host = host->starts_with('[') ? host->substr(1, host->size() - 2) : *host;
  return out;
}

}  // namespace derate
