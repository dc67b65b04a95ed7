#include "service/transport/tcp_connect.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "service/transport/unix_socket.h"

namespace derate {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> look_up(const HttpTarget& target) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(target.port);
  int error = ::getaddrinfo(target.host.c_str(), port.c_str(), &hints, &found);
  // A machine without /etc/hosts has one, too (RFC 6761, 6.3).
  if (error != 0 && target.host == "localhost")
    error = ::getaddrinfo("127.0.0.1", port.c_str(), &hints, &found);
  if (error != 0)
    return Error{Errc::not_found, fmt::format("'{}': {}", target.host, ::gai_strerror(error))};
  return Addresses(found, &::freeaddrinfo);
}

Error cannot_connect(const HttpTarget& target, int number) {
  return {Errc::not_found,
          fmt::format("cannot connect to '{}': {}", target.authority(), std::strerror(number))};
}

}  // namespace

Result<UniqueFd> connect_to(const HttpTarget& target, Clock& clock, Instant end) {
  const Addresses addresses = TRY(look_up(target));
  int number = ECONNREFUSED;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    UniqueFd socket(
        ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, each->ai_protocol));
    if (!socket.valid()) {
      number = errno;
      continue;
    }
    if (::connect(socket.get(), each->ai_addr, each->ai_addrlen) == 0) return socket;
    number = errno;
    if (number != EINPROGRESS) continue;
    if (!wait_for(socket.get(), POLLOUT, clock, end)) return cannot_connect(target, ETIMEDOUT);
    socklen_t size = sizeof number;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &number, &size) != 0) number = errno;
    if (number == 0) return socket;
  }
  return cannot_connect(target, number);
}

}  // namespace derate
