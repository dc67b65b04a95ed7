#include "base/unix_address.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/safe_path.h"

namespace derate {

Error socket_error(const std::string& what, const std::string& path, int number) {
  const Errc code = number == ENOENT || number == ECONNREFUSED ? Errc::not_found
                    : number == EACCES || number == EPERM      ? Errc::no_permission
                    : number == EAGAIN                         ? Errc::busy
                                                               : Errc::io;
  return {code, fmt::format("{} '{}': {}", what, path, std::strerror(number))};
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{Errc::invalid_argument,
                 fmt::format("'{}': a socket's name has at most {} characters", path,
                             sizeof address.sun_path - 1)};
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

std::string own_beat_socket(const std::string& run_folder, uid_t user) {
  return fmt::format("{}/beats/{}.sock", run_folder, user);
}

Result<void> check_listener(int socket, const std::string& path) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
    return socket_error("cannot know who listens on", path, errno);
  if (is_trusted_user(who.uid)) return {};
  return Error{Errc::no_permission,
               fmt::format("'{}' is not asked: user {} listens there, who is neither root nor user "
                           "{}",
                           path, who.uid, ::geteuid())};
}

}  // namespace derate
