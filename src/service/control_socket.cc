#include "service/control_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/exit_code.h"
#include "base/json.h"
#include "service/unix_address.h"

namespace derate {
namespace {

constexpr std::uint64_t kCallers = 0;  // in place of a connection's number

// Where as many callers wait as there is room for, that is EAGAIN and not a wait.
Result<UniqueFd> connected(const std::string& path) {
  const sockaddr_un address = TRY(address_of(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return socket_error("cannot reach", path, errno);
  return socket;
}

}  // namespace

ControlServer::ControlServer(std::string path, UniqueFd socket, UniqueFd events, Clock& clock,
                             Audience audience)
    : path_(std::move(path)),
      socket_(std::move(socket)),
      events_(std::move(events)),
      clock_(clock),
      audience_(audience) {}

Result<std::unique_ptr<ControlServer>> ControlServer::create(const std::string& path, Clock& clock,
                                                             Audience audience) {
  const auto other = connected(path);
  if (other.ok() || other.error().code == Errc::busy)
    return Error{Errc::busy, fmt::format("another daemon listens on '{}'", path)};
  const sockaddr_un address = TRY(address_of(path));
  ::unlink(path.c_str());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return socket_error("cannot make", path, errno);
  const mode_t before = ::umask(audience == Audience::everyone ? 0111 : 0177);
  const int bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int number = errno;
  ::umask(before);
  if (bound != 0) return socket_error("cannot make", path, number);
  UniqueFd events(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event calls{EPOLLIN, {.u64 = kCallers}};
  if (!events.valid() || ::epoll_ctl(events.get(), EPOLL_CTL_ADD, socket.get(), &calls) != 0)
    return socket_error("cannot watch", path, errno);
  std::unique_ptr<ControlServer> server(
      new ControlServer(path, std::move(socket), std::move(events), clock, audience));
  if (::listen(server->socket_.get(), static_cast<int>(server->most_clients())) != 0)
    return socket_error("cannot listen on", path, errno);
  return server;
}

ControlServer::~ControlServer() { ::unlink(path_.c_str()); }

std::size_t ControlServer::most_clients() const {
  return audience_ == Audience::everyone ? kMostOfEveryone : kMostClients;
}

// Whether to keep the caller; one of many is told why not.
bool ControlServer::admit(const UniqueFd& socket, const ucred& who) const {
  if (audience_ == Audience::owner_and_root) return who.uid == 0 || who.uid == ::geteuid();
  const auto his = static_cast<std::size_t>(
      std::count_if(clients_.begin(), clients_.end(),
                    [&](const Client& client) { return client.peer.uid == who.uid; }));
  if (his < kMostOfOneUser && clients_.size() < kMostOfEveryone) return true;
  const Json refusal = {
      {"ok", false},
      {"error", fmt::format("user {} has {} connections of {}: allowed are {} a user and {} in all",
                            who.uid, his, clients_.size(), kMostOfOneUser, kMostOfEveryone)},
      {"exit_code", exit_code_of(Errc::busy)}};
  const std::string line = json_text(refusal) + "\n";
  (void)::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL);
  return false;
}

void ControlServer::take_callers() {
  // Everyone is answered, if only with a refusal; the owner's own wait for a place.
  int left = static_cast<int>(most_clients());
  while ((audience_ == Audience::everyone || clients_.size() < kMostClients) && left-- > 0) {
    UniqueFd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) continue;
    if (!admit(socket, who)) continue;
    Client client;
    client.socket = std::move(socket);
    client.peer = {who.pid, who.uid, next_connection_++};
    client.heard = clock_.now();
    watch(client, EPOLL_CTL_ADD);
    clients_.push_back(std::move(client));
  }
}

bool ControlServer::has_request(const Client& client) const {
  return client.in.find('\n') != std::string::npos;
}

bool ControlServer::wants_to_hear(const Client& client) const {
  return !client.waits && !client.ended && client.out.empty() && !has_request(client);
}

// Who waits or does not read is not listened to: what it says stays in the kernel, which is
// bounded.
void ControlServer::watch(const Client& client, int operation) const {
  epoll_event event{0, {.u64 = client.peer.connection}};
  if (wants_to_hear(client)) event.events |= EPOLLIN;
  if (!client.out.empty()) event.events |= EPOLLOUT;
  (void)::epoll_ctl(events_.get(), operation, client.socket.get(), &event);
}

void ControlServer::note_ready() {
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const auto& [what, data] = events[static_cast<std::size_t>(i)];
    if (data.u64 == kCallers) take_callers();
    for (Client& client : clients_) {
      if (client.peer.connection != data.u64) continue;
      client.ready = true;
      client.broken = (what & (EPOLLERR | EPOLLHUP)) != 0 && !wants_to_hear(client);
    }
  }
}

void ControlServer::read_from(Client& client) {
  char buffer[4096];
  while (client.in.size() <= kLongestRequest) {
    const ssize_t n = ::recv(client.socket.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      client.heard = clock_.now();
      client.in.append(buffer, static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    client.ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    return;
  }
}

void ControlServer::write_to(Client& client) {
  while (!client.out.empty()) {
    const ssize_t n =
        ::send(client.socket.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      client.broken = client.broken || (errno != EAGAIN && errno != EWOULDBLOCK);
      return;
    }
    client.out.erase(0, static_cast<std::size_t>(n));
  }
}

bool ControlServer::serve_one(Client& client, const Handler& handler) {
  write_to(client);
  if (client.ready && wants_to_hear(client)) read_from(client);
  client.ready = false;
  for (int left = kMostARound; left > 0 && !client.waits && client.out.empty(); --left) {
    const auto end = client.in.find('\n');
    if (end == std::string::npos) break;
    auto text = handler(std::string_view(client.in).substr(0, end), client.peer);
    client.in.erase(0, end + 1);
    client.waits = !text;
    if (text) client.out = *std::move(text) + "\n";
    write_to(client);
  }
  const bool too_long = client.in.size() > kLongestRequest && !has_request(client);
  const bool said_all = client.ended && !client.waits && client.out.empty() && !has_request(client);
  const bool idle =
      audience_ == Audience::owner_and_root && clock_.now() - client.heard >= kIdleTime;
  return !client.broken && !too_long && !said_all && !idle;
}

void ControlServer::serve(const Handler& handler, const Closed& closed) {
  note_ready();
  std::vector<Peer> gone;
  std::erase_if(clients_, [&](Client& client) {
    if (serve_one(client, handler)) {
      watch(client, EPOLL_CTL_MOD);
      return false;
    }
    gone.push_back(client.peer);
    return true;
  });
  for (const Peer& peer : gone) closed(peer);
}

void ControlServer::answer(std::uint64_t connection, const std::string& text) {
  for (Client& client : clients_) {
    if (client.peer.connection != connection || !client.waits) continue;
    client.waits = false;
    client.out = text + "\n";
    write_to(client);
    watch(client, EPOLL_CTL_MOD);
  }
}

namespace {

Error no_answer(const std::string& path, Duration patience) {
  return {Errc::gpu_stuck,
          fmt::format("the daemon at '{}' has not answered for {:.0f} s", path, seconds(patience))};
}

// Waits for `events` whatever signals come; false at `end`.
bool wait_for(int fd, short events, Clock& clock, Instant end) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now());
    if (left.count() <= 0) return false;
    pollfd wanted{fd, events, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
  }
}

// Where too many callers wait to be heard, one more waits here.
Result<UniqueFd> connected_by(const std::string& path, Clock& clock, Instant end,
                              Duration patience) {
  constexpr Duration kTryEvery = std::chrono::milliseconds(10);
  while (true) {
    auto socket = connected(path);
    if (socket.ok() || socket.error().code != Errc::busy) return socket;
    if (clock.now() >= end) return no_answer(path, patience);
    clock.sleep_until(std::min(end, clock.now() + kTryEvery));
  }
}

}  // namespace

Result<std::string> control_call(const std::string& path, const std::string& request,
                                 Duration patience) {
  SystemClock clock;
  const Instant end = clock.now() + patience;
  const UniqueFd socket = TRY(connected_by(path, clock, end, patience));
  std::string line = request + "\n", answer;
  while (!line.empty()) {
    const ssize_t n = ::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL);
    const bool full = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (n < 0 && errno != EINTR && !full) return socket_error("cannot write to", path, errno);
    if (n > 0) line.erase(0, static_cast<std::size_t>(n));
    if (full && !wait_for(socket.get(), POLLOUT, clock, end)) return no_answer(path, patience);
  }
  while (answer.empty() || answer.back() != '\n') {
    if (!wait_for(socket.get(), POLLIN, clock, end)) return no_answer(path, patience);
    char buffer[4096];
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
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
