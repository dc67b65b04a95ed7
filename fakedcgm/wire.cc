#include "fakedcgm/wire.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/json.h"
#include "base/text.h"
#include "base/unix_address.h"

namespace derate::fakedcgm {
namespace {

constexpr std::uint32_t kMostBytes = 1 << 20;
constexpr int kBacklog = 16;

struct SocketName {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool is_tcp() const { return storage.ss_family == AF_INET; }
};

template <class Name>
SocketName name_of(const Name& name) {
  SocketName out;
  std::memcpy(&out.storage, &name, sizeof name);
  out.size = sizeof name;
  return out;
}

Result<SocketName> parse_name(const std::string& address) {
  constexpr std::string_view kHost = "127.0.0.1:";
  if (!address.starts_with(kHost)) return name_of(TRY(address_of(address)));
  const auto port = parse_integer(address.substr(kHost.size()));
  if (!port || *port < 1 || *port > 65535)
    return Error{Errc::invalid_argument, address + ": allowed are ports from 1 to 65535"};
  sockaddr_in tcp{};
  tcp.sin_family = AF_INET;
  tcp.sin_port = htons(static_cast<std::uint16_t>(*port));
  tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return name_of(tcp);
}

Result<UniqueFd> open_for(const SocketName& name, const std::string& address, int more) {
  UniqueFd out(::socket(name.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | more, 0));
  if (out.get() < 0) return socket_error("a socket for", address, errno);
  const int on = 1;
  if (name.is_tcp()) ::setsockopt(out.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return out;
}

bool is_socket(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode);
}

}  // namespace

Result<UniqueFd> connect_to(const std::string& address) {
  SocketName name = TRY(parse_name(address));
  UniqueFd out = TRY(open_for(name, address, 0));
  if (::connect(out.get(), name.get(), name.size) != 0)
    return socket_error("cannot connect to", address, errno);
  return out;
}

Result<UniqueFd> listen_at(const std::string& address) {
  SocketName name = TRY(parse_name(address));
  if (connect_to(address).ok()) return Error{Errc::busy, address + ": somebody listens there"};
  UniqueFd out = TRY(open_for(name, address, SOCK_NONBLOCK));
  const int on = 1;
  if (name.is_tcp()) ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!name.is_tcp() && is_socket(address)) ::unlink(address.c_str());
  if (::bind(out.get(), name.get(), name.size) != 0 || ::listen(out.get(), kBacklog) != 0)
    return socket_error("cannot listen at", address, errno);
  return out;
}

bool send_packet(int fd, const Json& json) {
  const std::string text = json_text(json);
  const auto length = static_cast<std::uint32_t>(text.size());
  std::string packet(sizeof length, '\0');
  std::memcpy(packet.data(), &length, sizeof length);
  packet += text;
  for (std::size_t sent = 0; sent < packet.size();) {
    const ssize_t more = ::send(fd, packet.data() + sent, packet.size() - sent, MSG_NOSIGNAL);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return false;
    sent += static_cast<std::size_t>(more);
  }
  return true;
}

bool Inbox::read_from(int fd) {
  char some[65536];
  ssize_t got = 0;
  do {
    got = ::recv(fd, some, sizeof some, 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
  if (got <= 0) return false;
  bytes_.append(some, static_cast<std::size_t>(got));
  return bytes_.size() <= kMostBytes;
}

std::optional<Json> Inbox::take() {
  std::uint32_t length = 0;
  if (bytes_.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, bytes_.data(), sizeof length);
  if (bytes_.size() - sizeof length < length) return std::nullopt;
  Json out = parse_json(std::string_view(bytes_).substr(sizeof length, length));
  bytes_.erase(0, sizeof length + length);
  return out;
}

}  // namespace derate::fakedcgm
