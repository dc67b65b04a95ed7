#include "core/dcgm_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace derate {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kLoopback[] = {"127.0.0.1", "localhost"};

Error bad_address(std::string_view text) {
  return {Errc::invalid_argument,
          fmt::format("DCGM address '{}': allowed are 127.0.0.1:PORT and unix:/PATH, of this "
                      "machine's host engine",
                      text)};
}

}  // namespace

Result<DcgmAddress> parse_dcgm_address(std::string_view text) {
  if (text.starts_with(kUnix)) {
    const std::string_view path = text.substr(kUnix.size());
    if (!path.starts_with('/')) return bad_address(text);
    return DcgmAddress{.host = {}, .port = 0, .path = std::string(path)};
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text);
  const std::string_view host = text.substr(0, colon);
  const auto port = parse_integer(text.substr(colon + 1));
  const bool local =
      std::find(std::begin(kLoopback), std::end(kLoopback), host) != std::end(kLoopback);
  if (!local || !port || *port < 1 || *port > 65535) return bad_address(text);
  return DcgmAddress{.host = "127.0.0.1", .port = static_cast<int>(*port), .path = {}};
}

std::string to_string(const DcgmAddress& address) {
  if (address.host.empty()) return std::string(kUnix) + address.path;
  return fmt::format("{}:{}", address.host, address.port);
}

}  // namespace derate
