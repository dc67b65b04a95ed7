#include "device/dcgm/dcgm_listeners.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"
#include "device/dcgm/dcgm_abi.h"

namespace derate {
namespace {

// A connection to 127.0.0.1 arrives at these local addresses: at that one or any, of IPv4 and of
// IPv6 that takes IPv4, too. Written as the kernel's tables have them on little-endian machines.
constexpr std::string_view kArrivals[] = {
    "0100007F", "00000000", "0000000000000000FFFF00000100007F", "00000000000000000000000000000000"};
constexpr std::string_view kListening = "0A";

// Columns of /proc/net/tcp: number, local, remote, state, queues, timer, retransmits, user.
struct TcpRow {
  std::string_view local, state, user;
};
std::optional<TcpRow> parse_row(std::string_view line) {
  std::array<std::string_view, 8> columns;
  std::size_t filled = 0;
  for (const std::string_view word : split(line, ' ')) {
    if (word.empty()) continue;
    columns[filled++] = word;
    if (filled == columns.size()) return TcpRow{columns[1], columns[3], columns[7]};
  }
  return std::nullopt;
}

bool arrives(std::string_view local, const std::string& port) {
  const std::size_t colon = local.find(':');
  if (colon == std::string_view::npos || local.substr(colon + 1) != port) return false;
  return std::find(std::begin(kArrivals), std::end(kArrivals), local.substr(0, colon)) !=
         std::end(kArrivals);
}

void add_listeners(const std::string& table, const std::string& port, std::vector<uid_t>& out) {
  const auto text = read_file(table);
  if (!text.ok()) return;
  for (const std::string_view line : split(*text, '\n')) {
    const auto row = parse_row(line);
    if (!row || row->state != kListening || !arrives(row->local, port)) continue;
    if (const auto user = parse_integer(row->user)) out.push_back(static_cast<uid_t>(*user));
  }
}

}  // namespace

std::vector<DcgmAddress> usual_dcgm_addresses() {
  return {{.host = "127.0.0.1", .port = dcgm::kPort, .path = {}},
          {.host = {}, .port = 0, .path = dcgm::kSocketPath}};
}

std::vector<uid_t> listeners_of(const DcgmAddress& address, const std::string& proc_net) {
  if (address.host.empty()) {
    struct stat found {};
    if (::lstat(address.path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return {};
    return {found.st_uid};
  }
  std::vector<uid_t> out;
  const std::string port = fmt::format("{:04X}", address.port);
  add_listeners(proc_net + "/tcp", port, out);
  add_listeners(proc_net + "/tcp6", port, out);
  return out;
}

Result<void> check_listeners(const DcgmAddress& address, const std::vector<uid_t>& listeners,
                             uid_t own) {
  if (listeners.empty())
    return Error{Errc::not_found, fmt::format("no host engine listens at {}", to_string(address))};
  for (const uid_t user : listeners)
    if (user != 0 && user != own)
      return Error{Errc::no_permission,
                   fmt::format("user {} listens at {}: a host engine of root, or of user {}, is "
                               "used",
                               user, to_string(address), own)};
  return {};
}

}  // namespace derate
