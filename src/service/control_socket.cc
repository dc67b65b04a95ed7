#include "service/control_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/unix_address.h"

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

std::string refusal(const Error& error) {
  return json_text(Json{{"ok", false},
                        {"error", error.message},
                        {"exit_code", exit_code_of(error.code)},
                        {"code", word_of(error.code)}}) +
         "\n";
}

}  // namespace

ControlServer::ControlServer(std::string path, UniqueFd socket, Clock& clock, Audience audience)
    : path_(std::move(path)), socket_(std::move(socket)), clock_(clock), audience_(audience) {}

Result<std::unique_ptr<ControlServer>> ControlServer::create(const std::string& path, Clock& clock,
                                                             Audience audience) {
  const auto other = connected(path);
  if (other.ok() || other.error().code == Errc::busy)
    return Error{Errc::busy, fmt::format("another daemon listens on '{}'", path)};
  const sockaddr_un address = TRY(address_of(path));
  ::unlink(path.c_str());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return socket_error("cannot make", path, errno);
  refuse_files(socket.get());
  const mode_t before = ::umask(audience == Audience::everyone ? 0111 : 0177);
  const int bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int number = errno;
  ::umask(before);
  if (bound != 0) return socket_error("cannot make", path, number);
  std::unique_ptr<ControlServer> server(
      new ControlServer(path, std::move(socket), clock, audience));
  TRY(server->begin_watching());
  if (::listen(server->socket_.get(), static_cast<int>(server->most_clients())) != 0)
    return socket_error("cannot listen on", path, errno);
  return server;
}

ControlServer::~ControlServer() { ::unlink(path_.c_str()); }

Result<void> ControlServer::begin_watching() {
  events_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wakes_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const auto add = [](const UniqueFd& to, const UniqueFd& fd) {
    epoll_event event{EPOLLIN, {.u64 = kCallers}};
    return fd.valid() && ::epoll_ctl(to.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
  };
  if (add(events_, socket_) && add(wakes_, events_) && add(wakes_, timer_)) return {};
  return socket_error("cannot watch", path_, errno);
}

std::size_t ControlServer::most_clients() const {
  return audience_ == Audience::everyone ? kMostOfEveryone : kMostClients;
}

std::size_t ControlServer::longest_request() const {
  return audience_ == Audience::everyone ? kLongestOfEveryone : kLongestRequest;
}

// --- who may come --------------------------------------------------------------------------------

// Whether to keep the caller; one of many is told why not.
bool ControlServer::admit(const UniqueFd& socket, const ucred& who) {
  if (audience_ == Audience::owner_and_root) return who.uid == 0 || who.uid == ::geteuid();
  const auto own = static_cast<std::size_t>(
      std::count_if(clients_.begin(), clients_.end(),
                    [&](const Client& client) { return client.peer.uid == who.uid; }));
  const bool room = clients_.size() < kMostOfEveryone || make_room(who.uid, own);
  if (own < kMostOfOneUser && room) return true;
  const std::string line = refusal(
      {Errc::busy, fmt::format("user {} has {} connections of {}: allowed are {} a user and {} in "
                               "all, of which each user has a share",
                               who.uid, own, clients_.size(), kMostOfOneUser, kMostOfEveryone)});
  (void)::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL);
  return false;
}

// Takes a place from the user who has most, root aside: that of the connection that was silent for
// longest, an idle one if there is any. False where that would be no fairer.
bool ControlServer::make_room(uid_t uid, std::size_t own) {
  if (own >= kMostOfOneUser) return false;
  std::map<uid_t, std::size_t> count;
  for (const Client& client : clients_)
    if (client.peer.uid != 0 && !client.broken) ++count[client.peer.uid];
  const auto most = std::max_element(
      count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == count.end() || (uid != 0 && most->second < own + 2)) return false;
  const auto rank = [](const Client& client) {
    const bool idle = !client.waits && client.in.empty() && client.out.empty();
    return std::pair(!idle, client.heard);
  };
  Client* last = nullptr;
  for (Client& client : clients_)
    if (client.peer.uid == most->first && !client.broken &&
        (last == nullptr || rank(client) < rank(*last)))
      last = &client;
  last->broken = true;
  return true;
}

void ControlServer::take_callers() {
  // Everyone is answered, if only with a refusal; the owner's own wait for a place.
  int left = kMostCallers;
  while ((audience_ == Audience::everyone || clients_.size() < kMostClients) && left-- > 0) {
    UniqueFd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) continue;
    if (!admit(socket, who)) {
      closer_.hang_up(std::move(socket));
      continue;
    }
    Client client;
    client.socket = std::move(socket);
    client.peer = {who.pid, who.uid, next_connection_++};
    client.heard = clock_.now();
    epoll_event event{client.watched, {.u64 = client.peer.connection}};
    (void)::epoll_ctl(events_.get(), EPOLL_CTL_ADD, client.socket.get(), &event);
    clients_.push_back(std::move(client));
  }
}

// --- what comes and goes -------------------------------------------------------------------------

bool ControlServer::has_request(const Client& client) const {
  return client.end != std::string::npos;
}

bool ControlServer::takes_requests(const Client& client) const {
  return !client.waits && !client.ended && client.out.empty() && !has_request(client);
}

// Who waits or does not read is not listened to: what it says stays in the kernel, which is
// bounded.
void ControlServer::watch(Client& client) {
  std::uint32_t wanted = 0;
  if (takes_requests(client)) wanted |= EPOLLIN;
  if (!client.out.empty()) wanted |= EPOLLOUT;
  if (wanted == std::exchange(client.watched, wanted)) return;
  epoll_event event{wanted, {.u64 = client.peer.connection}};
  (void)::epoll_ctl(events_.get(), EPOLL_CTL_MOD, client.socket.get(), &event);
}

ControlServer::Client* ControlServer::client(std::uint64_t connection) {
  const auto at = std::lower_bound(
      clients_.begin(), clients_.end(), connection,
      [](const Client& client, std::uint64_t wanted) { return client.peer.connection < wanted; });
  return at != clients_.end() && at->peer.connection == connection ? &*at : nullptr;
}

void ControlServer::mark_ready() {
  std::array<epoll_event, kMostOfEveryone + kMostClients> events{};
  const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool calls = false;
  for (int i = 0; i < count; ++i) {
    const auto& [what, data] = events[static_cast<std::size_t>(i)];
    calls |= data.u64 == kCallers;
    Client* const found = client(data.u64);
    if (found == nullptr) continue;
    found->ready = true;
    // One that has hung up is still obeyed; it is not waited for, nor written to.
    if ((what & (EPOLLERR | EPOLLHUP)) != 0)
      found->broken = found->broken || found->waits || !found->out.empty();
  }
  if (calls) take_callers();
}

// As ::recv(); files that came along are closed elsewhere.
ssize_t ControlServer::receive(const UniqueFd& socket, std::span<char> buffer) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostPassedFiles * sizeof(int))];
  iovec room{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (n >= 0) closer_.close_files_of(message);
  return n;
}

void ControlServer::read_from(Client& client) {
  char buffer[4096];
  while (client.in.size() <= longest_request() && !closer_.is_full()) {
    const ssize_t n = receive(client.socket, buffer);
    if (n > 0) {
      client.heard = clock_.now();
      client.in.append(buffer, static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    client.ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    break;
  }
  client.end = client.in.find('\n');
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

// Where the next request begins is not known then: the connection ends.
void ControlServer::refuse_too_long(Client& client) {
  const std::string line = refusal(
      {Errc::invalid_argument,
       fmt::format("a request has more than {} bytes: no more are allowed", longest_request())});
  (void)::send(client.socket.get(), line.data(), line.size(), MSG_NOSIGNAL);
  client.broken = true;
}

// --- whose turn it is ----------------------------------------------------------------------------

bool ControlServer::has_work(const Client& client) const {
  if (client.broken || client.waits) return false;
  if (!client.out.empty()) return client.ready;
  return client.left > 0 && (has_request(client) || (client.ready && !client.ended));
}

// Null: nobody has anything to do.
ControlServer::Client* ControlServer::next_turn() {
  // After the last, by user and then by connection; the first again after all of them.
  const auto distance = [&](const Client& client) {
    const auto last = turns_.connection.find(client.peer.uid);
    return std::tuple(client.peer.uid <= turns_.uid, client.peer.uid,
                      last != turns_.connection.end() && client.peer.connection <= last->second,
                      client.peer.connection);
  };
  Client* out = nullptr;
  for (Client& client : clients_)
    if (has_work(client) && (out == nullptr || distance(client) < distance(*out))) out = &client;
  if (out == nullptr) return nullptr;
  turns_.uid = out->peer.uid;
  turns_.connection[out->peer.uid] = out->peer.connection;
  return out;
}

// What is owed is written, what has come is read, and one request is answered.
void ControlServer::take_turn(Client& client, const Handler& handler) {
  write_to(client);
  if (client.ready && takes_requests(client)) read_from(client);
  client.ready = false;
  if (client.broken || client.waits || !client.out.empty()) return;
  if (std::min(client.end, client.in.size()) > longest_request()) return refuse_too_long(client);
  if (!has_request(client)) return;
  --client.left;
  auto text = handler(std::string_view(client.in).substr(0, client.end), client.peer);
  client.in.erase(0, client.end + 1);
  client.end = client.in.find('\n');
  client.waits = !text;
  if (text) client.out = *std::move(text) + "\n";
  write_to(client);
}

bool ControlServer::is_done(const Client& client) const {
  const bool said_all = client.ended && !client.waits && client.out.empty() && !has_request(client);
  const bool idle =
      audience_ == Audience::owner_and_root && clock_.now() - client.heard >= kIdleTime;
  return client.broken || said_all || idle;
}

bool ControlServer::has_time() const {
  return audience_ == Audience::owner_and_root || spent_ + (clock_.now() - began_) < kBudget;
}

// Without time nobody wakes us before the next round; with leftovers that comes at the latest.
void ControlServer::wake_later(bool out_of_time) {
  epoll_event event{out_of_time ? 0u : static_cast<std::uint32_t>(EPOLLIN), {.u64 = kCallers}};
  (void)::epoll_ctl(wakes_.get(), EPOLL_CTL_MOD, events_.get(), &event);
  const bool leftovers = std::any_of(clients_.begin(), clients_.end(), [&](const Client& client) {
    return !client.waits && client.out.empty() && has_request(client);
  });
  itimerspec when{};
  if (out_of_time || leftovers) {
    // Not 0: that would be never.
    const Duration wait = std::max<Duration>(round_ + kRound - clock_.now(), Duration(1));
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(wait);
    when.it_value = {whole.count(), (wait - whole).count()};
  }
  (void)::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

void ControlServer::serve(const Handler& handler, const Closed& closed) {
  began_ = clock_.now();
  if (round_ == Instant::min() || began_ - round_ >= kRound) {
    round_ = began_;
    spent_ = {};
  }
  if (!has_time() || closer_.is_full()) return wake_later(true);
  mark_ready();
  for (Client& client : clients_) client.left = kMostARound;
  for (Client* client = nullptr; has_time() && (client = next_turn()) != nullptr;)
    take_turn(*client, handler);
  std::vector<Peer> gone;
  std::erase_if(clients_, [&](Client& client) {
    if (!is_done(client)) return watch(client), false;
    gone.push_back(client.peer);
    closer_.hang_up(std::move(client.socket));
    return true;
  });
  std::erase_if(turns_.connection, [&](const auto& last) {
    return std::none_of(clients_.begin(), clients_.end(),
                        [&](const Client& client) { return client.peer.uid == last.first; });
  });
  for (const Peer& peer : gone) closed(peer);
  const bool out_of_time = !has_time();
  spent_ += clock_.now() - began_;
  wake_later(out_of_time);
}

void ControlServer::answer(std::uint64_t connection, const std::string& text) {
  Client* const found = client(connection);
  if (found == nullptr || !found->waits) return;
  found->waits = false;
  found->out = text + "\n";
  write_to(*found);
  watch(*found);
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
  TRY(check_listener(socket.get(), path));
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
