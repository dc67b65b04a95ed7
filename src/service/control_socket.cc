#include "service/control_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "service/unix_address.h"

namespace derate {
namespace {

Result<UniqueFd> connected(const std::string& path) {
  const sockaddr_un address = TRY(address_of(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return socket_error("cannot reach", path, errno);
  return socket;
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::create(const std::string& path,
                                                             Clock& clock) {
  if (connected(path).ok())
    return Error{Errc::busy, fmt::format("another daemon listens on '{}'", path)};
  const sockaddr_un address = TRY(address_of(path));
  ::unlink(path.c_str());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return socket_error("cannot make", path, errno);
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int number = errno;
  ::umask(before);
  if (bound != 0) return socket_error("cannot make", path, number);
  if (::listen(socket.get(), static_cast<int>(kMostClients)) != 0)
    return socket_error("cannot listen on", path, errno);
  return std::unique_ptr<ControlServer>(new ControlServer(path, std::move(socket), clock));
}

ControlServer::~ControlServer() { ::unlink(path_.c_str()); }

void ControlServer::take_callers() {
  while (clients_.size() < kMostClients) {
    UniqueFd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) continue;
    if (who.uid != 0 && who.uid != ::geteuid()) continue;
    clients_.push_back({std::move(socket), {who.pid, who.uid}, {}, {}, clock_.now()});
  }
}

bool ControlServer::serve_one(Client& client, const Handler& handler) {
  char buffer[4096];
  bool ended = false;
  while (true) {
    const ssize_t n = ::recv(client.socket.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      client.heard = clock_.now();
      client.in.append(buffer, static_cast<std::size_t>(n));
      if (client.in.size() > kLongestRequest) return false;
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    break;
  }
  for (auto end = client.in.find('\n'); end != std::string::npos; end = client.in.find('\n')) {
    client.out += handler(std::string_view(client.in).substr(0, end), client.peer) + "\n";
    client.in.erase(0, end + 1);
  }
  while (!client.out.empty()) {
    const ssize_t n =
        ::send(client.socket.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    client.out.erase(0, static_cast<std::size_t>(n));
  }
  return !ended && clock_.now() - client.heard < kIdleTime;
}

void ControlServer::serve(const Handler& handler) {
  take_callers();
  std::erase_if(clients_, [&](Client& client) { return !serve_one(client, handler); });
}

Result<std::string> control_call(const std::string& path, const std::string& request,
                                 Duration patience) {
  const UniqueFd socket = TRY(connected(path));
  const std::string line = request + "\n";
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size()))
    return socket_error("cannot write to", path, errno);
  SystemClock clock;
  const Instant end = clock.now() + patience;
  std::string answer;
  while (answer.empty() || answer.back() != '\n') {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now());
    pollfd wanted{socket.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&wanted, 1, static_cast<int>(left.count())) == 0)
      return Error{Errc::gpu_stuck, fmt::format("the daemon at '{}' has not answered for {:.0f} s",
                                                path, seconds(patience))};
    char buffer[4096];
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return Error{Errc::io, fmt::format("the daemon at '{}' closed the line without an answer "
                                         "(does it run as another user?)",
                                         path)};
    answer.append(buffer, static_cast<std::size_t>(n));
  }
  answer.pop_back();
  return answer;
}

}  // namespace derate
