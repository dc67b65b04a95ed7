#include "service/transport/loopback_peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/number.h"
#include "base/text.h"

namespace derate {
namespace {

// As IPv6 has it; of IPv4 the mapped address.
struct EndPoint {
  std::array<std::uint8_t, 16> address{};
  std::uint16_t port = 0;
  bool is_v4 = false;
};

EndPoint of_v4(const in_addr& address, in_port_t port) {
  EndPoint out{.port = ntohs(port), .is_v4 = true};
  out.address[10] = out.address[11] = 0xff;
  std::memcpy(&out.address[12], &address, sizeof address);
  return out;
}

EndPoint of_v6(const in6_addr& address, in_port_t port) {
  EndPoint out{.port = ntohs(port), .is_v4 = IN6_IS_ADDR_V4MAPPED(&address) != 0};
  std::memcpy(out.address.data(), &address, sizeof address);
  return out;
}

std::optional<EndPoint> end_point(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    return of_v4(v4.sin_addr, v4.sin_port);
  }
  if (from.ss_family != AF_INET6) return std::nullopt;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  return of_v6(v6.sin6_addr, v6.sin6_port);
}

// As the tables write it: words of 32 bits as this machine's memory has them, in hexadecimal.
std::string text_of(const EndPoint& end, bool as_v4) {
  std::string out;
  for (std::size_t at = as_v4 ? 12 : 0; at < end.address.size(); at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, &end.address[at], sizeof word);
    out += fmt::format("{:08X}", word);
  }
  return out + fmt::format(":{:04X}", end.port);
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (const std::string_view word : split(line, ' '))
    if (!word.empty()) out.push_back(word);
  return out;
}

// Of a row "sl local remote st queues timer retransmits uid timeout inode ...".
std::optional<uid_t> find_in(const std::string& path, const std::string& local,
                             const std::string& remote) {
  constexpr std::size_t kUser = 7, kInode = 9;
  const auto text = read_file(path);
  if (!text.ok()) return std::nullopt;
  const std::string both = local + " " + remote + " ";
  for (std::size_t at = text->find(both); at != std::string::npos; at = text->find(both, at + 1)) {
    const std::size_t begin = text->rfind('\n', at) + 1;
    const auto words =
        words_of(std::string_view(*text).substr(begin, text->find('\n', at) - begin));
    if (words.size() <= kInode || words[1] != local || words[kInode] == "0") continue;
    if (const auto uid = parse_uid(words[kUser])) return *uid;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uid_t> user_of_peer(const UniqueFd& connection, const TcpTables& tables) {
  sockaddr_storage own{}, other{};
  socklen_t own_size = sizeof own, other_size = sizeof other;
  if (::getsockname(connection.get(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      ::getpeername(connection.get(), reinterpret_cast<sockaddr*>(&other), &other_size) != 0)
    return std::nullopt;
  const auto here = end_point(own), there = end_point(other);
  if (!here || !there) return std::nullopt;
  // A socket of IPv6 may have connected to an address of IPv4: it is in the other table.
  if (here->is_v4)
    if (const auto uid = find_in(tables.v4, text_of(*there, true), text_of(*here, true)))
      return uid;
  return find_in(tables.v6, text_of(*there, false), text_of(*here, false));
}

}  // namespace derate
