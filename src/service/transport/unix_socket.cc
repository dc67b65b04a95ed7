#include "service/transport/unix_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/unix_address.h"
#include "service/transport/passed_files.h"

namespace derate {

Result<UniqueFd> connect_at(const std::string& path) {
  const sockaddr_un address = TRY(address_of(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return socket_error("cannot reach", path, errno);
  return socket;
}

Result<UniqueFd> listen_at(const std::string& path, ::mode_t mode, int backlog) {
  const auto other = connect_at(path);
  if (other.ok() || other.error().code == Errc::busy)
    return Error{Errc::busy, fmt::format("another process listens on '{}'", path)};
  const sockaddr_un address = TRY(address_of(path));
  ::unlink(path.c_str());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return socket_error("cannot make", path, errno);
  (void)refuse_files(socket.get());
  const ::mode_t before = ::umask(~mode & 0777);
  const int bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int number = errno;
  ::umask(before);
  if (bound != 0) return socket_error("cannot make", path, number);
  if (::listen(socket.get(), backlog) != 0) return socket_error("cannot listen on", path, errno);
  return socket;
}

UniqueFd accept_caller(const UniqueFd& listener) {
  UniqueFd out(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int on = 1;
  if (out.valid()) (void)::setsockopt(out.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
  return out;
}

std::optional<Peer> peer_of(const UniqueFd& socket) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return std::nullopt;
  std::vector<gid_t> groups;
  size = 0;
  // Without room it tells how much it needs.
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERGROUPS, nullptr, &size) != 0 &&
      errno == ERANGE) {
    groups.resize(size / sizeof(gid_t));
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0)
      groups.clear();
  }
  groups.push_back(who.gid);
  return Peer{.pid = who.pid, .uid = who.uid, .groups = std::move(groups)};
}

SharedHandle process_of(const UniqueFd& socket, const Peer& peer) {
#ifdef SO_PEERPIDFD
  constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
  constexpr int kPeerPidfd = 77;  // asm-generic/socket.h; Debian 12's headers are older
#endif
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(socket.get(), SOL_SOCKET, kPeerPidfd, &fd, &size) == 0)
    return std::make_shared<const ProcessHandle>(UniqueFd(fd));
  // The process has exited (EINVAL before Linux 6.16). Another process may have its PID now.
  if (errno == ESRCH || errno == EINVAL) return std::make_shared<const ProcessHandle>(UniqueFd());
  if (errno != ENOPROTOOPT) return nullptr;  // such as for want of a descriptor
  return std::make_shared<const ProcessHandle>(ProcessHandle::open(peer.pid));
}

Result<UniqueFd> connect_by(const std::string& path, Clock& clock, Instant end, Duration patience) {
  constexpr Duration kTryEvery = std::chrono::milliseconds(10);
  while (true) {
    auto socket = connect_at(path);
    if (socket.ok() || socket.error().code != Errc::busy) return socket;
    if (clock.now() >= end) return no_answer(path, patience);
    clock.sleep_until(std::min(end, clock.now() + kTryEvery));
  }
}

bool wait_for(int fd, short events, Clock& clock, Instant end) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now());
    if (left.count() <= 0) return false;
    pollfd wanted{fd, events, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
  }
}

Error no_answer(const std::string& path, Duration patience) {
  return {Errc::gpu_stuck,
          fmt::format("the server at '{}' has not answered for {:.0f} s", path, seconds(patience))};
}

}  // namespace derate
