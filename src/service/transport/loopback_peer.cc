#include "service/transport/loopback_peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
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

// An IPv6 address and a port. An IPv4 address is stored as its mapped address.
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

// The form in the kernel's tables: words of 32 bits as this machine's memory has them, in
// hexadecimal.
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

// Finds the user in a row "sl local remote st queues timer retransmits uid timeout inode ...".
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

struct Ends {
  EndPoint here, there;
};

std::optional<Ends> ends_of(const UniqueFd& connection) {
  sockaddr_storage own{}, other{};
  socklen_t own_size = sizeof own, other_size = sizeof other;
  if (::getsockname(connection.get(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      ::getpeername(connection.get(), reinterpret_cast<sockaddr*>(&other), &other_size) != 0)
    return std::nullopt;
  const auto here = end_point(own), there = end_point(other);
  if (!here || !there) return std::nullopt;
  return Ends{*here, *there};
}

// The kernel's answer about the socket whose own end is `own`.
struct Diagnosis {
  bool is_there = false;  // the socket exists, with or without a user
  std::optional<uid_t> user = {};
};

Diagnosis diagnosis_of(const inet_diag_msg& row, const inet_diag_sockid& wanted) {
  constexpr int kListens = 10;  // TCP_LISTEN: found in place of a socket that is gone
  const bool is_it = row.idiag_state != kListens && row.id.idiag_sport == wanted.idiag_sport &&
                     row.id.idiag_dport == wanted.idiag_dport;
  if (!is_it) return {};
  return {true, row.idiag_inode != 0 ? std::optional<uid_t>(row.idiag_uid) : std::nullopt};
}

void put_address(const EndPoint& end, std::uint32_t* out) {
  const std::size_t from = end.is_v4 ? 12 : 0;
  std::memcpy(out, &end.address[from], end.address.size() - from);
}

// If the kernel does not support such queries, `is_there` is false, too.
Diagnosis ask_kernel(const EndPoint& own, const EndPoint& other) {
  struct {
    nlmsghdr head{};
    inet_diag_req_v2 what{};
  } question;
  question.head.nlmsg_len = sizeof question;
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.what.sdiag_family = own.is_v4 ? AF_INET : AF_INET6;
  question.what.sdiag_protocol = IPPROTO_TCP;
  question.what.idiag_states = ~0u;
  inet_diag_sockid& id = question.what.id;
  id.idiag_sport = htons(own.port);
  id.idiag_dport = htons(other.port);
  put_address(own, id.idiag_src);
  put_address(other, id.idiag_dst);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const UniqueFd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  alignas(nlmsghdr) char answer[1024];
  if (!kernel.valid() || ::send(kernel.get(), &question, sizeof question, 0) < 0) return {};
  const ssize_t n = ::recv(kernel.get(), answer, sizeof answer, MSG_DONTWAIT);
  const auto& head = *reinterpret_cast<const nlmsghdr*>(answer);
  if (n < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) ||
      head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
    return {};
  return diagnosis_of(*static_cast<const inet_diag_msg*>(NLMSG_DATA(&head)), id);
}

}  // namespace

std::optional<uid_t> user_in_tables(const UniqueFd& connection, const TcpTables& tables) {
  const auto ends = ends_of(connection);
  if (!ends) return std::nullopt;
  const auto& [here, there] = *ends;
  for (int tries = 2; tries > 0; --tries) {
    // If an IPv6 socket has connected to an IPv4 address, its row is in the other table.
    if (here.is_v4)
      if (const auto uid = find_in(tables.v4, text_of(there, true), text_of(here, true)))
        return uid;
    if (const auto uid = find_in(tables.v6, text_of(there, false), text_of(here, false)))
      return uid;
  }
  return std::nullopt;
}

// If the kernel finds our own end, it supports such queries, and no process has the other end.
std::optional<uid_t> user_of_peer(const UniqueFd& connection) {
  const auto ends = ends_of(connection);
  if (!ends) return std::nullopt;
  const Diagnosis found = ask_kernel(ends->there, ends->here);
  if (found.is_there || ask_kernel(ends->here, ends->there).is_there) return found.user;
  return user_in_tables(connection);
}

}  // namespace derate
