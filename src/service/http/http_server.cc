#include "service/http/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <limits>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/number.h"
#include "base/unix_address.h"
#include "service/http/http_connection.h"
#include "service/transport/client_turns.h"
#include "service/transport/unix_socket.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using Stage = HttpConnection::Stage;

// In place of a connection's number.
constexpr std::uint64_t kCallers = 0;
constexpr std::uint64_t kNews = std::numeric_limits<std::uint64_t>::max();

constexpr int kMostCallers = 80;  // in one round of service: more wait for the next
// Callers that wait to be taken, on a unix socket. A flood fills this queue, and a later caller
// waits until all before it have been taken. If each has sent as much as its socket holds, closing
// it takes 50 to 120 us (measured on Linux 6.18), that is 0.3 s for 256 in kAcceptTime; with
// SOMAXCONN (4096) callers waited for up to 6 s. A caller that finds the queue full waits in
// connect().
constexpr int kMostWaiting = 256;
constexpr uid_t kNoUser = static_cast<uid_t>(-1);
constexpr std::size_t kKinds = 3;

// Places beyond most_connections. Who gets none of those may still ask for what is of kind health.
constexpr std::size_t kProvisional = 16, kProvisionalOfAUser = 4;
constexpr Duration kProvisionalTime = 2s;

// If all places are taken, a caller that has got no further for kHeldUpTime gives way: with half a
// request, or with an unread answer. With a second instead, places would become free more slowly
// than their holders connect anew.
constexpr Duration kHeldUpTime = 100ms, kDripTime = 1s;
// Limit of callers that have no place but still get to read the refusal.
constexpr std::size_t kTurnedAway = 32;

// Requests that wait for a later answer, of each kind, and of them a user's.
constexpr std::array<std::size_t, kKinds> kMostLater{64, 256, 64};
constexpr std::array<std::size_t, kKinds> kMostLaterOfAUser{32, 64, 16};

// Bytes: of requests that come in, and of answers that have not gone out.
constexpr std::size_t kMostIncoming = 8 << 20, kMostIncomingOfAUser = 1 << 20;
constexpr std::size_t kMostUnsent = 32 << 20, kMostUnsentOfAUser = 4 << 20;

// What a connection that ends may still send, so that it gets to read why it ends.
constexpr Duration kDrainTime = 1s;
constexpr Duration kLastEventTime = 1s;

// Time without new callers while too many connections wait to be closed.
constexpr Duration kCloserTime = 10ms;

// The thread's CPU time of each RoundBudget::kRound: callers are taken, requests come in, and each
// kind is served. CPU time, because what others use of a busy machine is not this server's.
constexpr Duration kAcceptTime = 12ms, kIntakeTime = 8ms;
constexpr std::array<Duration, kKinds> kServeTime{8ms, 12ms, 8ms};
static_assert(kAcceptTime + kIntakeTime + kServeTime[0] + kServeTime[1] + kServeTime[2] <
              RoundBudget::kRound / 2);

std::size_t index_of(HttpKind kind) { return static_cast<std::size_t>(kind); }

HttpResponse refusal(int status, std::string_view message) {
  HttpResponse out = error_response(status, message);
  out.fields.emplace_back("Retry-After", "1");
  return out;
}

bool can_be_served(const HttpConnection& at) {
  if (at.broken) return false;
  if (!at.out.empty() && at.writable) return true;
  if (at.stage == Stage::stream) return at.woken || (at.asks && at.out.empty());
  return at.stage == Stage::turn && at.out.empty();
}

bool has_input(const HttpConnection& at) { return at.has_input(); }

// The time since which it holds a place without progress of its own; long ago, if it has had its
// last answer. A caller that sends byte by byte always has input, and has a second for a head.
std::optional<Instant> held_up_since(const HttpConnection& at, Instant now) {
  if (at.broken || at.is_turned_away) return std::nullopt;
  if (at.stage == Stage::drain) return at.begun - kHeldUpTime;
  const bool drips =
      at.stage == Stage::request && at.parser.has_begun() && now - at.begun >= kDripTime;
  if (at.has_input()) return drips ? std::optional(at.begun) : std::nullopt;
  const bool answered = at.stage == Stage::request || at.stage == Stage::last;
  if (answered && !at.out.empty()) return at.progressed;
  if (at.stage == Stage::request && at.parser.has_begun()) return at.begun;
  return std::nullopt;
}

// "127.0.0.1:9410" or "[::1]:9410".
struct TcpAddress {
  std::optional<sockaddr_in> v4;  // else v6
  sockaddr_in6 v6{};
};

std::optional<TcpAddress> tcp_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto port = parse_number<std::uint16_t>(std::string_view(address).substr(colon + 1));
  std::string host = address.substr(0, colon);
  if (!port || host.find('\0') != std::string::npos) return std::nullopt;
  TcpAddress out;
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(*port)};
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) return TcpAddress{.v4 = v4};
  if (!host.starts_with('[') || !host.ends_with(']')) return std::nullopt;
  host = host.substr(1, host.size() - 2);
  out.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(*port)};
  if (::inet_pton(AF_INET6, host.c_str(), &out.v6.sin6_addr) != 1) return std::nullopt;
  return out;
}

// `address`: as errors name it.
Result<UniqueFd> listen_on(const TcpAddress& to, const std::string& address) {
  const bool is_v4 = to.v4.has_value();
  UniqueFd out(::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, off = 0;
  if (!out.valid() || ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    return socket_error("cannot make", address, errno);
  // [::] is of IPv4, too, whatever net.ipv6.bindv6only says.
  if (!is_v4 && IN6_IS_ADDR_UNSPECIFIED(&to.v6.sin6_addr) &&
      ::setsockopt(out.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0)
    return socket_error("cannot make", address, errno);
  const auto* const at = is_v4 ? reinterpret_cast<const sockaddr*>(&*to.v4)
                               : reinterpret_cast<const sockaddr*>(&to.v6);
  const socklen_t size = is_v4 ? sizeof *to.v4 : sizeof to.v6;
  if (::bind(out.get(), at, size) != 0 || ::listen(out.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE)
      return Error{Errc::busy, fmt::format("somebody listens on '{}' already", address)};
    return socket_error("cannot listen on", address, errno);
  }
  return out;
}

}  // namespace

// Fills up with time, to as many as come in a second.
class HttpRate {
 public:
  explicit HttpRate(double rate) : rate_(rate), left_(rate) {}
  bool take(Instant now) {
    left_ = left(now);
    filled_ = now;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  bool has_any(Instant now) const { return left(now) >= 1; }
  bool is_full(Instant now) const { return left(now) >= rate_; }

 private:
  double left(Instant now) const { return std::min(rate_, left_ + rate_ * seconds(now - filled_)); }

  double rate_, left_;
  Instant filled_{};
};

struct HttpUser {
  explicit HttpUser(double rate) : requests(kKinds, HttpRate(rate)), refusals(rate) {}

  std::vector<HttpRate> requests;  // by kind
  HttpRate refusals;               // who is refused more often is no longer answered
  std::array<std::size_t, kKinds> later{};
  std::size_t incoming = 0, unsent = 0;  // bytes

  bool is_idle(Instant now) const {
    return refusals.is_full(now) &&
           std::all_of(later.begin(), later.end(), [](std::size_t each) { return each == 0; }) &&
           std::all_of(requests.begin(), requests.end(),
                       [&](const HttpRate& each) { return each.is_full(now); });
  }
};

// A connection that waits for its turn.
struct HttpTurn {
  HttpConnection* at;
  const Peer& peer;
  bool (*works)(const HttpConnection& at);
  bool has_work() const { return works(*at); }
};

struct HttpShare {
  explicit HttpShare(Duration time) : budget(time) {}

  void begin(Instant now) { budget.begin(now, thread_cpu_time()); }
  bool is_left() const { return budget.is_left(thread_cpu_time()); }
  void end() { budget.end(thread_cpu_time()); }

  RoundBudget budget;
  ClientTurns turns;
};

// --- the server's thread -------------------------------------------------------------------------

struct HttpServer::State {
  State(UniqueFd listener, Clock& time, HttpServerOptions all)
      : socket(std::move(listener)), clock(time), options(std::move(all)) {}

  Result<void> begin();
  void run();
  void tell();  // the thread that there is something new

  // Rounds of service, in this order.
  int wait();
  void tell_date();
  void mark(int count);
  bool take_news();  // false: the server goes
  void take_callers();
  void take_in();
  void serve();
  void end_round();
  void forget_others(Instant now);
  void wake_for(HttpShare& share, Instant now);
  void wake_for(const HttpConnection& at, Instant now);
  void wake_for_callers(Instant now);

  HttpUser& user(uid_t person);
  template <class F>
  void go_through(HttpShare& share, std::vector<HttpTurn>& turns, F does);

  // Connections of which `counts` says so.
  struct Count {
    std::size_t all = 0, of_user = 0;
  };
  template <class F>
  Count count(uid_t person, F counts) const;
  bool admit(HttpConnection& caller);
  bool goes_on_refused(const Peer& peer);
  std::size_t connections_of(uid_t person) const;
  HttpConnection* idle_of(uid_t person);
  HttpConnection* held_up_of(uid_t person);
  void turn_away(HttpConnection caller, const HttpResponse& why);
  void take(HttpConnection caller);

  void take_in(HttpConnection& at);
  void saw_head(HttpConnection& at);
  std::optional<HttpResponse> refused(const HttpConnection& at);
  std::optional<HttpResponse> refused_stream(const HttpConnection& at) const;
  void refuse(HttpConnection& at, const HttpResponse& response);
  void serve(HttpConnection& at);
  bool lose_slowest();
  void reply(HttpConnection& at, HttpReply reply);
  void end_later(HttpConnection& at);
  void lose(HttpConnection& at);

  std::optional<Instant> deadline(const HttpConnection& at) const;
  void end_in_time(HttpConnection& at);
  void hang_up(HttpConnection& at);

  UniqueFd socket;
  Clock& clock;
  HttpServerOptions options;
  bool is_unix = false;
  std::string path;  // of a unix socket

  UniqueFd events, news;  // of all connections; from other threads
  std::array<epoll_event, 256> ready{};
  std::shared_ptr<SocketCloser> closer;
  std::vector<HttpConnection> connections;       // ascending by number
  std::map<uid_t, HttpUser> users;               // by the person whose share it is
  std::map<std::uint64_t, std::uint64_t> later;  // connections by the numbers of requests
  std::array<std::size_t, kKinds> later_of_kind{};
  std::uint64_t next_connection = 1, next_request = 1;
  std::size_t incoming = 0, unsent = 0;  // bytes of all
  HttpShare accepting{kAcceptTime}, intake{kIntakeTime};
  std::array<HttpShare, kKinds> serving{HttpShare(kServeTime[0]), HttpShare(kServeTime[1]),
                                        HttpShare(kServeTime[2])};
  WallTime dated = WallTime::min();
  std::string date;  // of this second
  bool callers_wait = false;
  bool watches_callers = true;
  Instant no_room_until = Instant::min();  // for more callers: this process has no descriptor
  Instant wake = Instant::max();           // the next round, unless something comes

  std::mutex mutex;  // of what follows
  std::vector<std::pair<std::uint64_t, HttpReply>> answers;
  bool wakes_streams = false, stops = false;

  std::atomic<std::uint64_t> requests = 0, refusals = 0, accepted = 0, streams = 0, dropped = 0;
  std::thread thread;
};

Result<void> HttpServer::State::begin() {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return socket_error("cannot serve", "", errno);
  is_unix = address.ss_family == AF_UNIX;
  if (is_unix) path = reinterpret_cast<const sockaddr_un&>(address).sun_path;
  closer = options.closer;
  if (!is_unix) closer = std::make_shared<SocketCloser>(SocketCloser::Where::at_once);
  if (closer == nullptr) closer = std::make_shared<SocketCloser>();
  events = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  news = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const auto add = [&](const UniqueFd& fd, std::uint64_t number) {
    epoll_event event{EPOLLIN, {.u64 = number}};
    return fd.valid() && ::epoll_ctl(events.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
  };
  if (!add(socket, kCallers) || !add(news, kNews)) return socket_error("cannot watch", path, errno);
  try {
    thread = std::thread([this] { run(); });
  } catch (const std::system_error& wrong) {
    return Error{Errc::io, fmt::format("cannot begin a thread for '{}': {}", path, wrong.what())};
  }
  return {};
}

void HttpServer::State::tell() { (void)::eventfd_write(news.get(), 1); }

// Signals are for other threads.
void HttpServer::State::run() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  while (true) {
    mark(wait());
    tell_date();
    if (!take_news()) return;
    take_callers();
    take_in();
    serve();
    end_round();
  }
}

int HttpServer::State::wait() {
  int timeout = -1;
  if (wake != Instant::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - clock.now()).count();
    timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
  }
  return ::epoll_wait(events.get(), ready.data(), static_cast<int>(ready.size()), timeout);
}

void HttpServer::State::tell_date() {
  const WallTime second = std::chrono::floor<std::chrono::seconds>(clock.wall_now());
  if (second != std::exchange(dated, second)) date = http_date(second);
}

HttpUser& HttpServer::State::user(uid_t person) {
  return users.try_emplace(person, options.requests_a_second_of_a_user).first->second;
}

void HttpServer::State::mark(int count) {
  for (int i = 0; i < count; ++i) {
    const auto& [what, data] = ready[static_cast<std::size_t>(i)];
    if (data.u64 == kCallers) callers_wait = true;
    HttpConnection* const found = find_client(connections, data.u64);
    if (found == nullptr) continue;
    if ((what & EPOLLIN) != 0) found->readable = true;
    if ((what & EPOLLOUT) != 0) found->writable = true;
    // Who has hung up gets no answer, and what it asked for is not done.
    if ((what & (EPOLLERR | EPOLLHUP)) != 0) found->broken = true;
  }
}

bool HttpServer::State::take_news() {
  eventfd_t count = 0;
  (void)::eventfd_read(news.get(), &count);
  std::vector<std::pair<std::uint64_t, HttpReply>> come;
  bool wakes = false;
  {
    const std::lock_guard lock(mutex);
    if (stops) return false;
    come.swap(answers);
    wakes = std::exchange(wakes_streams, false);
  }
  for (auto& [number, answer] : come) {
    const auto found = later.find(number);
    if (found == later.end()) continue;
    HttpConnection* const at = find_client(connections, found->second);
    if (at->broken) continue;  // the round's end counts it out, and tells that it has gone
    end_later(*at);
    reply(*at, std::move(answer));
  }
  for (HttpConnection& at : connections) at.woken |= wakes && at.stage == Stage::stream;
  return true;
}

// --- who may come --------------------------------------------------------------------------------

template <class F>
HttpServer::State::Count HttpServer::State::count(uid_t person, F counts) const {
  Count out;
  for (const HttpConnection& each : connections) {
    if (!counts(each)) continue;
    ++out.all;
    if (each.peer.share() == person) ++out.of_user;
  }
  return out;
}

std::size_t HttpServer::State::connections_of(uid_t person) const {
  return count(person,
               [](const HttpConnection& each) { return !each.broken && !each.is_turned_away; })
      .of_user;
}

// The person's connection that has been between two requests for longest.
HttpConnection* HttpServer::State::idle_of(uid_t person) {
  HttpConnection* out = nullptr;
  for (HttpConnection& each : connections)
    if (each.peer.share() == person && each.is_idle() && !each.broken && !each.readable &&
        (out == nullptr ||
         std::pair(each.is_provisional, each.heard) < std::pair(out->is_provisional, out->heard)))
      out = &each;
  return out;
}

// The person's connection that has been held up for longest, and for at least kHeldUpTime.
HttpConnection* HttpServer::State::held_up_of(uid_t person) {
  HttpConnection* out = nullptr;
  std::pair<bool, Instant> longest;  // connections with a place of their own come first
  for (HttpConnection& each : connections) {
    const auto since = held_up_since(each, clock.now());
    if (each.peer.share() != person || !since || clock.now() - *since < kHeldUpTime) continue;
    if (out != nullptr && longest <= std::pair(each.is_provisional, *since)) continue;
    longest = {each.is_provisional, *since};
    out = &each;
  }
  return out;
}

// If a socket is closed with unread bytes, the connection is reset and the caller may never read
// the refusal.
void HttpServer::State::turn_away(HttpConnection caller, const HttpResponse& why) {
  ++refusals;
  caller.ends_after = true;
  caller.respond(why, clock.now());
  hang_up(caller);
  const auto [all, of_user] =
      count(caller.peer.share(), [](const HttpConnection& at) { return at.is_turned_away; });
  if (caller.broken || all >= kTurnedAway)
    return closer->close(std::move(caller.socket), caller.peer.share());
  caller.is_turned_away = true;
  caller.is_provisional = false;
  take(std::move(caller));
}

// Adds the connection and receives its events from now on.
void HttpServer::State::take(HttpConnection caller) {
  caller.watched = EPOLLIN;
  epoll_event event{EPOLLIN, {.u64 = caller.peer.connection}};
  (void)::epoll_ctl(events.get(), EPOLL_CTL_ADD, caller.socket.get(), &event);
  connections.push_back(std::move(caller));
}

// Whether there is a place for it, if only a provisional one.
bool HttpServer::State::admit(HttpConnection& caller) {
  const uid_t person = caller.peer.share();
  const bool keeps = caller.peer.has_kept_place();
  const std::size_t own = connections_of(person);
  if (own < options.most_of_a_user) {
    const auto has_place = [keeps](const HttpConnection& at) {
      return !at.is_provisional && !at.is_turned_away && !at.broken &&
             (keeps || !at.peer.has_kept_place());
    };
    const std::size_t most = options.most_connections + (keeps ? kKeptPlaces : 0);
    if (count(person, has_place).all < most) return true;
    const auto frees = [](const HttpConnection& at) {
      return !at.is_turned_away && !at.is_provisional;
    };
    if (HttpConnection* const place = place_for(connections, own, keeps, frees)) {
      place->broken = true;
      return true;
    }
  }
  HttpConnection* const held_up = held_up_of(person);
  if (HttpConnection* const gives_way = held_up != nullptr ? held_up : idle_of(person)) {
    gives_way->broken = true;
    caller.is_provisional = gives_way->is_provisional;  // takes the same kind of place
    return true;
  }
  const auto [all, of_user] =
      count(person, [](const HttpConnection& each) { return each.is_provisional; });
  caller.is_provisional = true;
  // Callers of unknown user count as one person, to which the limit per user does not apply.
  return all < kProvisional && (person == kNoUser || of_user < kProvisionalOfAUser);
}

bool HttpServer::State::goes_on_refused(const Peer& peer) {
  return !options.carries(peer) && !user(peer.share()).refusals.has_any(clock.now());
}

void HttpServer::State::take_callers() {
  if (!callers_wait || clock.now() < no_room_until) return;
  if (closer->is_full()) {
    no_room_until = clock.now() + kCloserTime;
    return;
  }
  accepting.begin(clock.now());
  callers_wait = false;
  for (int left = kMostCallers;; --left) {
    if (left == 0 || !accepting.is_left()) {
      callers_wait = true;
      break;
    }
    UniqueFd from = accept_caller(socket);
    if (!from.valid()) {
      // Those who wait would wake us again and again, and there is no room for them.
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) {
        no_room_until = clock.now() + RoundBudget::kRound;
        callers_wait = true;
      }
      break;
    }
    ++accepted;
    Peer peer{.uid = kNoUser};
    if (is_unix) {
      auto known = peer_of(from);
      if (!known) {
        closer->close(std::move(from), kNoUser);
        continue;
      }
      peer = *std::move(known);
      options.shares.mark(peer);
    } else {
      const int on = 1;
      (void)::setsockopt(from.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      peer.person = options.user_of(from);
    }
    // Who goes on after many refusals does not get to ask, nor an answer: that takes time of
    // others.
    if (is_unix && (closer->is_full(peer.share()) || goes_on_refused(peer))) {
      ++refusals;
      closer->close(std::move(from), peer.share());
      continue;
    }
    peer.connection = next_connection++;
    HttpConnection caller{.socket = std::move(from),
                          .peer = peer,
                          .heard = clock.now(),
                          .limits = {options.most_head_bytes, options.most_body_bytes},
                          .caller = peer,
                          .date = &date};
    const auto unwanted = is_unix ? std::nullopt : options.turn_away(peer);
    if (unwanted)
      turn_away(std::move(caller), *unwanted);
    else if (!admit(caller))
      turn_away(std::move(caller), refusal(503, "too many connections"));
    else
      take(std::move(caller));
  }
  accepting.end();
}

// Those who have work, by turns, each at most twice, until the share of time is used up.
template <class F>
void HttpServer::State::go_through(HttpShare& share, std::vector<HttpTurn>& turns, F does) {
  if (turns.empty()) return;
  share.begin(clock.now());
  for (std::size_t left = 2 * turns.size(); left > 0; --left) {
    HttpTurn* const turn = share.is_left() ? share.turns.next(turns) : nullptr;
    if (turn == nullptr || !does(*turn->at)) break;
  }
  share.end();
}

// --- what comes in -------------------------------------------------------------------------------

void HttpServer::State::take_in() {
  std::vector<HttpTurn> turns;
  incoming = unsent = 0;
  for (auto& [person, each] : users) each.incoming = each.unsent = 0;
  for (HttpConnection& at : connections) {
    if (at.has_input()) turns.push_back({&at, at.peer, has_input});
    if (at.held == 0 && at.out.empty()) continue;
    HttpUser& who = user(at.share());
    who.incoming += at.held;
    who.unsent += at.out.bytes;
    incoming += at.held;
    unsent += at.out.bytes;
  }
  // Each once or twice: then others are served.
  go_through(intake, turns, [this](HttpConnection& at) {
    at.stage == Stage::drain ? at.drain(*closer) : take_in(at);
    return true;
  });
}

void HttpServer::State::take_in(HttpConnection& at) {
  const std::size_t before = at.held;
  at.take_in(*closer, clock.now());
  HttpUser& who = user(at.share());
  const std::size_t more = at.held - std::min(before, at.held);
  who.incoming += more;
  incoming += more;
  if (const auto& fault = at.parser.fault())
    return refuse(at, error_response(fault->status, fault->message));
  if (at.parser.has_head() && !std::exchange(at.saw_head, true)) saw_head(at);
  if (at.stage != Stage::request || !at.out.empty()) return;
  if (more > 0 && at.parser.has_head() &&
      (who.incoming > kMostIncomingOfAUser || incoming > kMostIncoming))
    return refuse(at, refusal(503, "too many requests with a body at once: try again later"));
  if (at.parser.is_whole()) at.stage = Stage::turn;
}

void HttpServer::State::saw_head(HttpConnection& at) {
  at.kind = options.kind_of(at.parser.request());
  at.payer = options.share_of(at.parser.request(), at.peer);
  if (const auto why = refused(at)) return refuse(at, *why);
  if (at.parser.waits_for_continue()) at.ask_for_body(clock.now());
}

// Why the request is not served; empty: it is.
std::optional<HttpResponse> HttpServer::State::refused(const HttpConnection& at) {
  if (at.is_provisional && at.kind != HttpKind::health)
    return refusal(503, fmt::format("too many connections: allowed are {} a user and {} in all",
                                    options.most_of_a_user, options.most_connections));
  if (!user(at.share()).requests[index_of(at.kind)].take(clock.now()))
    return refusal(429, fmt::format("too many requests: allowed are {} a second of a user",
                                    options.requests_a_second_of_a_user));
  return at.kind == HttpKind::stream ? refused_stream(at) : std::nullopt;
}

std::optional<HttpResponse> HttpServer::State::refused_stream(const HttpConnection& at) const {
  const auto [all, of_user] = count(
      at.peer.share(), [](const HttpConnection& each) { return each.stage == Stage::stream; });
  if (of_user >= options.most_streams_of_a_user)
    return refusal(429, fmt::format("too many streams: allowed are {} a user",
                                    options.most_streams_of_a_user));
  if (all >= options.most_streams)
    return refusal(503, fmt::format("too many streams: allowed are {}", options.most_streams));
  return std::nullopt;
}

// Who goes on with what is refused is hung up on.
void HttpServer::State::refuse(HttpConnection& at, const HttpResponse& response) {
  ++refusals;
  at.ends_after = at.ends_after || !user(at.share()).refusals.take(clock.now());
  at.respond(response, clock.now());
}

// --- what is answered ----------------------------------------------------------------------------

// Health before control before streams.
void HttpServer::State::serve() {
  std::array<std::vector<HttpTurn>, kKinds> turns;
  for (HttpConnection& at : connections)
    if (can_be_served(at)) turns[index_of(at.kind)].push_back({&at, at.peer, can_be_served});
  for (std::size_t kind = 0; kind < kKinds; ++kind)
    go_through(serving[kind], turns[kind], [this](HttpConnection& at) { return serve(at), true; });
}

void HttpServer::State::serve(HttpConnection& at) {
  const Instant now = clock.now();
  if (!at.out.empty() && at.writable) return at.write(now);
  if (at.stage == Stage::stream) {
    if (at.woken && at.has_events && at.out.bytes > options.most_unread_stream_bytes)
      return lose(at);
    // What is not asked for piece by piece is no longer than its reader is slow.
    if (at.woken && !at.has_events && !at.out.empty()) {
      at.asks = true;
      at.woken = false;
      return;
    }
    return at.ask_stream(now);
  }
  HttpUser& who = user(at.share());
  const std::size_t kind = index_of(at.kind);
  if (who.later[kind] >= kMostLaterOfAUser[kind])
    return refuse(at, refusal(429, "too many requests of this user wait for their answers"));
  if (later_of_kind[kind] >= kMostLater[kind])
    return refuse(at, refusal(503, "too many requests wait for their answers"));
  // TCP's callers are not known: all of them are one user.
  if (who.unsent > kMostUnsentOfAUser && at.peer.uid != kNoUser)
    return refuse(at, refusal(503, "too many answers are not read"));
  while (unsent > kMostUnsent)
    if (!lose_slowest()) return refuse(at, refusal(503, "too many answers are not read"));
  ++requests;
  at.caller.connection = next_request++;
  reply(at, options.handle({at.parser.request(), at.caller}));
  who.unsent += at.out.bytes;
  unsent += at.out.bytes;
}

// Who has read nothing for longest gives way: what is not read keeps nobody from an answer.
bool HttpServer::State::lose_slowest() {
  HttpConnection* slowest = nullptr;
  for (HttpConnection& at : connections)
    if (!at.broken && !at.out.empty() &&
        (slowest == nullptr || at.progressed < slowest->progressed))
      slowest = &at;
  if (slowest == nullptr) return false;
  slowest->broken = true;
  unsent -= std::min(unsent, slowest->out.bytes);
  return true;
}

void HttpServer::State::reply(HttpConnection& at, HttpReply reply) {
  if (auto* const response = std::get_if<HttpResponse>(&reply))
    return at.respond(*response, clock.now());
  if (auto* const stream = std::get_if<HttpStream>(&reply)) {
    at.kind = HttpKind::stream;
    if (const auto why = refused_stream(at))
      refuse(at, *why);
    else
      at.begin_stream(std::move(*stream), clock.now());
    if (at.stage != Stage::stream) return options.gone(at.caller);  // refused, or HEAD
    ++streams;
    return;
  }
  at.stage = Stage::later;
  later[at.caller.connection] = at.peer.connection;
  ++later_of_kind[index_of(at.kind)];
  ++user(at.share()).later[index_of(at.kind)];
}

void HttpServer::State::end_later(HttpConnection& at) {
  later.erase(at.caller.connection);
  --later_of_kind[index_of(at.kind)];
  --user(at.share()).later[index_of(at.kind)];
}

// A stream whose reader is too slow.
void HttpServer::State::lose(HttpConnection& at) {
  ++dropped;
  at.drop_stream(clock.now());
  options.gone(at.caller);
}

// --- what has lasted long enough -----------------------------------------------------------------

// Empty: nothing ends or is due.
std::optional<Instant> HttpServer::State::deadline(const HttpConnection& at) const {
  if (at.stage == Stage::drain) return at.begun + kDrainTime;
  if (!at.out.empty())
    return at.progressed +
           (at.stage == Stage::last && at.has_events ? kLastEventTime : options.write_time);
  if (at.stage == Stage::stream && at.has_events) return at.progressed + options.heartbeat_time;
  if (at.stage != Stage::request || at.has_input()) return std::nullopt;
  const Duration most = at.is_provisional ? kProvisionalTime : Duration::max();
  if (at.parser.has_begun()) return at.begun + std::min(most, options.head_time);
  return at.heard + std::min(most, options.idle_time);
}

void HttpServer::State::end_in_time(HttpConnection& at) {
  const bool unread = !at.out.empty();
  if (at.stage == Stage::stream && !unread) {
    at.send_heartbeat(clock.now());
  } else if (at.stage == Stage::stream && at.has_events) {
    lose(at);
  } else if (at.stage == Stage::request && !unread && at.parser.has_begun()) {
    refuse(at, error_response(408, "the request did not come in time"));
  } else {
    at.broken = true;
  }
}

// What is unread would take the answer with it: the caller is told that this was all, and is read
// for a while.
void HttpServer::State::hang_up(HttpConnection& at) {
  int unread = 0;
  const bool said_all = at.in.empty() && at.parser.is_whole() &&
                        ::ioctl(at.socket.get(), FIONREAD, &unread) == 0 && unread == 0;
  if (said_all || ::shutdown(at.socket.get(), SHUT_WR) != 0) {
    at.broken = true;
    return;
  }
  at.stage = Stage::drain;
  at.begun = clock.now();
}

// Who is done goes; the others are watched for what they can go on with.
void HttpServer::State::end_round() {
  const Instant now = clock.now();
  wake = Instant::max();
  std::vector<Peer> gone;
  const std::size_t before = connections.size();
  std::erase_if(connections, [&](HttpConnection& at) {
    if (const auto end = deadline(at); !at.broken && end && *end <= now) end_in_time(at);
    if (at.stage == Stage::last && at.out.empty()) hang_up(at);
    if (!at.broken && !at.has_said_all()) {
      at.watch(events);
      wake_for(at, now);
      return false;
    }
    if (at.stage == Stage::later) end_later(at);
    if (at.stage == Stage::later || at.stage == Stage::stream) gone.push_back(at.caller);
    (void)::epoll_ctl(events.get(), EPOLL_CTL_DEL, at.socket.get(), nullptr);
    closer->close(std::move(at.socket), at.peer.share());
    return true;
  });
  closer->go_on();
  for (const Peer& peer : gone) options.gone(peer);
  if (connections.size() != before) forget_others(now);
  wake_for_callers(now);
}

void HttpServer::State::forget_others(Instant now) {
  intake.turns.forget_others(connections);
  for (HttpShare& share : serving) share.turns.forget_others(connections);
  std::erase_if(users, [&](const auto& each) {
    return connections_of(each.first) == 0 && each.second.is_idle(now);
  });
}

void HttpServer::State::wake_for(HttpShare& share, Instant now) {
  share.begin(now);
  wake = std::min(wake, share.is_left() ? now : now + share.budget.until_next(now));
}

// When it goes on, where nothing comes before.
void HttpServer::State::wake_for(const HttpConnection& at, Instant now) {
  if (const auto end = deadline(at)) wake = std::min(wake, *end);
  if (can_be_served(at)) wake_for(serving[index_of(at.kind)], now);
  if (at.has_input()) wake_for(intake, now);
}

// Where there is no time or room for more callers, those who wait do not wake us.
void HttpServer::State::wake_for_callers(Instant now) {
  if (callers_wait && no_room_until > now)
    wake = std::min(wake, no_room_until);
  else if (callers_wait)
    wake_for(accepting, now);
  if (std::exchange(watches_callers, !callers_wait) != callers_wait) return;
  epoll_event event{callers_wait ? 0u : static_cast<std::uint32_t>(EPOLLIN), {.u64 = kCallers}};
  (void)::epoll_ctl(events.get(), EPOLL_CTL_MOD, socket.get(), &event);
}

// --- from any thread -----------------------------------------------------------------------------

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::create(UniqueFd socket, Clock& clock,
                                                       HttpServerOptions options) {
  CHECK(options.kind_of && options.handle && options.gone && options.user_of && options.turn_away &&
        options.carries && options.share_of);
  auto state = std::make_unique<State>(std::move(socket), clock, std::move(options));
  TRY(state->begin());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::~HttpServer() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stops = true;
  }
  state_->tell();
  state_->thread.join();
  if (!state_->is_unix) return;
  ::unlink(state_->path.c_str());
  // Unread messages may have files, so neither the listener nor a connection is closed here.
  state_->closer->close(std::move(state_->socket), kNoUser);
  for (HttpConnection& at : state_->connections)
    state_->closer->close(std::move(at.socket), at.peer.share());
}

void HttpServer::answer(std::uint64_t number, HttpReply reply) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->answers.emplace_back(number, std::move(reply));
  }
  state_->tell();
}

void HttpServer::wake_streams() {
  {
    const std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->wakes_streams, true)) return;
  }
  state_->tell();
}

HttpServer::Figures HttpServer::figures() const {
  return {state_->requests, state_->refusals, state_->accepted, state_->streams, state_->dropped};
}

Result<UniqueFd> listen_unix(const std::string& path, ::mode_t mode) {
  return listen_at(path, mode, kMostWaiting);
}

Result<UniqueFd> listen_loopback(const std::string& address) {
  const auto to = tcp_address(address);
  const bool is_loopback = to && (to->v4 ? (ntohl(to->v4->sin_addr.s_addr) >> 24) == 127
                                         : address.starts_with("[::1]:"));
  if (is_loopback) return listen_on(*to, address);
  return Error{Errc::invalid_argument,
               fmt::format("address '{}': allowed are 127.0.0.0/8 and [::1] with a port, "
                           "such as 127.0.0.1:9410",
                           address)};
}

Result<UniqueFd> listen_tcp(const std::string& address) {
  if (const auto to = tcp_address(address)) return listen_on(*to, address);
  return Error{Errc::invalid_argument,
               fmt::format("address '{}': allowed are addresses of IPv4 and, in brackets, of IPv6 "
                           "with a port, such as 0.0.0.0:9410 or [::]:9410",
                           address)};
}

}  // namespace derate
