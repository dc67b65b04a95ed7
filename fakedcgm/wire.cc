#include "fakedcgm/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace derate::fakedcgm {
namespace {

constexpr std::uint32_t kMostBytes = 1 << 20;
constexpr int kBacklog = 16;

struct SocketName {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketName name_of(const std::string& address) {
  SocketName out;
  const std::size_t colon = address.rfind(':');
  if (address.starts_with('/') || colon == std::string::npos) {
    auto& unix_name = reinterpret_cast<sockaddr_un&>(out.storage);
    unix_name.sun_family = AF_UNIX;
    address.copy(unix_name.sun_path, sizeof unix_name.sun_path - 1);
    out.size = sizeof unix_name;
    return out;
  }
  auto& tcp = reinterpret_cast<sockaddr_in&>(out.storage);
  tcp.sin_family = AF_INET;
  tcp.sin_port = htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + colon + 1)));
  tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  out.size = sizeof tcp;
  return out;
}

}  // namespace

int open_socket(const std::string& address, bool listens) {
  SocketName name = name_of(address);
  const bool tcp = name.storage.ss_family == AF_INET;
  const int kind = SOCK_STREAM | SOCK_CLOEXEC | (listens ? SOCK_NONBLOCK : 0);
  const int fd = ::socket(name.storage.ss_family, kind, 0);
  if (fd < 0) return -1;
  const int on = 1;
  if (tcp) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (tcp && listens) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!tcp && listens) ::unlink(address.c_str());
  const bool good = listens ? ::bind(fd, name.get(), name.size) == 0 && ::listen(fd, kBacklog) == 0
                            : ::connect(fd, name.get(), name.size) == 0;
  if (good) return fd;
  const int why = errno;
  ::close(fd);
  errno = why;
  return -1;
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
