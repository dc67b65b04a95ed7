#include "base/service_notice.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "base/unique_fd.h"
#include "base/unix_address.h"

namespace derate {

bool notify_service(std::string_view state) {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr || *name == '\0') return true;
  const std::string path = name;
  auto address = address_of(path);
  // A path, or the name of an abstract socket. systemd may pass addresses of other kinds (vsock,
  // for virtual machines): these get no notices.
  if (!address.ok() || (path.front() != '/' && path.front() != '@')) return true;
  if (path.front() == '@') address->sun_path[0] = '\0';
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return false;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  ssize_t sent = 0;
  do
    sent = ::sendto(socket.get(), state.data(), state.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                    reinterpret_cast<const sockaddr*>(&*address), size);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(state.size());
}

}  // namespace derate
