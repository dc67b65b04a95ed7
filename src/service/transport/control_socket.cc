#include "service/transport/control_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/unix_address.h"
#include "service/transport/unix_socket.h"

namespace derate {
namespace {

constexpr std::uint64_t kCallers = 0;  // in place of a connection's number
constexpr uid_t kNoPerson = static_cast<uid_t>(-1);

}  // namespace

ControlServer::ControlServer(std::string path, UniqueFd socket, Clock& clock, Audience audience,
                             std::shared_ptr<SocketCloser> closer)
    : path_(std::move(path)),
      closer_(std::move(closer)),
      socket_(std::move(socket)),
      clock_(clock),
      audience_(audience) {}

Result<std::unique_ptr<ControlServer>> ControlServer::create(const std::string& path, Clock& clock,
                                                             Audience audience,
                                                             std::shared_ptr<SocketCloser> closer) {
  const bool everyone = audience == Audience::everyone;
  UniqueFd socket = TRY(listen_at(path, everyone ? 0666 : 0600,
                                  static_cast<int>(everyone ? kMostOfEveryone : kMostClients)));
  std::unique_ptr<ControlServer> server(
      new ControlServer(path, std::move(socket), clock, audience, std::move(closer)));
  TRY(server->begin_watching());
  return server;
}

ControlServer::~ControlServer() {
  ::unlink(path_.c_str());
  closer_->close(std::move(socket_), kNoPerson);  // waiting callers may have sent files
  for (ClientConnection& client : clients_)
    closer_->close(std::move(client.socket), client.peer.share());
}

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

std::size_t ControlServer::longest_request() const {
  return audience_ == Audience::everyone ? kLongestOfEveryone : kLongestRequest;
}

// --- who may come --------------------------------------------------------------------------------

// Whether to keep the caller; one of many is told why not.
bool ControlServer::admit(const UniqueFd& socket, const Peer& who) {
  if (audience_ == Audience::owner_and_root) return who.uid == 0 || who.uid == ::geteuid();
  const auto count = [&](auto counts) {
    return static_cast<std::size_t>(std::count_if(clients_.begin(), clients_.end(), counts));
  };
  const auto own = count([&](const ClientConnection& client) {
    return client.peer.share() == who.share() &&
           client.peer.has_kept_place() == who.has_kept_place();
  });
  const auto kept =
      count([](const ClientConnection& client) { return client.peer.has_kept_place(); });
  const bool full = who.has_kept_place() ? clients_.size() >= kMostOfEveryone + kKeptPlaces
                                         : clients_.size() - kept >= kMostOfEveryone;
  if (own < kMostOfOneUser) {
    ClientConnection* const place = full ? place_for(clients_, own, who.has_kept_place()) : nullptr;
    if (place != nullptr) place->broken = true;
    if (!full || place != nullptr) return true;
  }
  send_refusal(
      socket,
      {Errc::busy, fmt::format("user {} has {} connections of {}: allowed are {} a user and {} in "
                               "all, of which each user has a share",
                               who.uid, own, clients_.size(), kMostOfOneUser, kMostOfEveryone)});
  return false;
}

void ControlServer::take_callers() {
  // Everyone is answered, if only with a refusal; the owner's own wait for a place.
  int left = kMostCallers;
  while ((audience_ == Audience::everyone || clients_.size() < kMostClients) && left-- > 0) {
    UniqueFd socket = accept_caller(socket_);
    if (!socket.valid()) return;
    auto who = peer_of(socket);
    if (who) shares_.mark(*who);
    if (!who || closer_->is_full(who->share()) || !admit(socket, *who)) {
      closer_->close(std::move(socket), who ? who->share() : kNoPerson);
      continue;
    }
    who->connection = next_connection_++;
    if (audience_ == Audience::everyone) who->process = process_of(socket, *who);
    ClientConnection client{
        .socket = std::move(socket), .peer = *std::move(who), .heard = clock_.now()};
    epoll_event event{client.watched, {.u64 = client.peer.connection}};
    (void)::epoll_ctl(events_.get(), EPOLL_CTL_ADD, client.socket.get(), &event);
    clients_.push_back(std::move(client));
  }
}

// --- what comes and goes -------------------------------------------------------------------------

void ControlServer::mark_ready() {
  std::array<epoll_event, kMostOfEveryone + kMostClients> events{};
  const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool calls = false;
  for (int i = 0; i < count; ++i) {
    const auto& [what, data] = events[static_cast<std::size_t>(i)];
    calls |= data.u64 == kCallers;
    ClientConnection* const found = find_client(clients_, data.u64);
    if (found == nullptr) continue;
    found->ready = true;
    // One that has hung up is still obeyed; it is not waited for, nor written to.
    if ((what & (EPOLLERR | EPOLLHUP)) != 0)
      found->broken = found->broken || found->waits || !found->out.empty();
  }
  if (calls) take_callers();
}

// --- whose turn it is ----------------------------------------------------------------------------

bool ControlServer::is_done(const ClientConnection& client) const {
  const bool idle =
      audience_ == Audience::owner_and_root && clock_.now() - client.heard >= kIdleTime;
  return client.broken || client.has_said_all() || idle;
}

bool ControlServer::has_time() const {
  return audience_ == Audience::owner_and_root || budget_.is_left(clock_.now());
}

// Without time nobody wakes us before the next round; with leftovers that comes at the latest.
void ControlServer::wake_later(bool out_of_time) {
  epoll_event event{out_of_time ? 0u : static_cast<std::uint32_t>(EPOLLIN), {.u64 = kCallers}};
  (void)::epoll_ctl(wakes_.get(), EPOLL_CTL_MOD, events_.get(), &event);
  const bool leftovers =
      std::any_of(clients_.begin(), clients_.end(), [&](const ClientConnection& client) {
        return !client.waits && client.out.empty() && client.has_request();
      });
  itimerspec when{};
  if (out_of_time || leftovers) {
    // Not 0: that would be never.
    const Duration wait = budget_.until_next(clock_.now());
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(wait);
    when.it_value = {whole.count(), (wait - whole).count()};
  }
  (void)::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

// Those that are done; what the others can go on with is watched.
std::vector<Peer> ControlServer::hang_up() {
  std::vector<Peer> gone;
  std::erase_if(clients_, [&](ClientConnection& client) {
    if (!is_done(client)) return client.watch(events_), false;
    gone.push_back(client.peer);
    (void)::epoll_ctl(events_.get(), EPOLL_CTL_DEL, client.socket.get(), nullptr);
    closer_->close(std::move(client.socket), client.peer.share());
    return true;
  });
  turns_.forget_others(clients_);
  return gone;
}

void ControlServer::serve(const Handler& handler, const Closed& closed) {
  budget_.begin(clock_.now());
  closer_->go_on();
  const bool is_shut = audience_ == Audience::everyone && closer_->is_full();
  if (!has_time() || is_shut) return wake_later(true);
  mark_ready();
  for (ClientConnection& client : clients_) client.left = kMostARound;
  for (ClientConnection* client = nullptr;
       has_time() && (client = turns_.next(clients_)) != nullptr;)
    if (const auto request = client->next_request(longest_request(), *closer_, clock_))
      client->reply(handler(*request, client->peer));
  for (const Peer& peer : hang_up()) closed(peer);
  const bool out_of_time = !has_time();
  budget_.end(clock_.now());
  wake_later(out_of_time);
}

void ControlServer::answer(std::uint64_t connection, const std::string& text) {
  ClientConnection* const found = find_client(clients_, connection);
  if (found == nullptr || !found->waits) return;
  found->reply_late(text);
  found->watch(events_);
}

Result<std::string> control_call(const std::string& path, const std::string& request,
                                 Duration patience) {
  SystemClock clock;
  const Instant end = clock.now() + patience;
  const UniqueFd socket = TRY(connect_by(path, clock, end, patience));
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
