#include "service/http/http_call.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/unix_address.h"
#include "service/http/http_parser.h"
#include "service/transport/unix_socket.h"

namespace derate {
namespace {

// For a stream's connection and head; what comes then has its time.
constexpr Duration kStreamPatience = std::chrono::seconds(10);

bool is_later(int number) { return number == EAGAIN || number == EWOULDBLOCK || number == EINTR; }

std::string head_of(const HttpAsk& ask) {
  std::string out = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", ask.method,
                                ask.target, ask.host);
  for (const auto& [name, value] : ask.fields) add_field(out, name, value);
  if (!ask.body.empty() || ask.method == "POST" || ask.method == "PUT")
    add_field(out, "Content-Length", std::to_string(ask.body.size()));
  return out + "\r\n";
}

Result<std::string> text_of(const HttpAsk& ask) {
  const auto is_odd = [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f; };
  if (ask.target.empty() || std::any_of(ask.target.begin(), ask.target.end(), is_odd))
    return Error{Errc::invalid_argument,
                 fmt::format("'{}': a target has no blanks, which stand as %20 in it", ask.target)};
  return head_of(ask) + ask.body;
}

// A server that refuses may close before it has read all: what it says is still read.
Result<void> send_all(const UniqueFd& socket, const std::string& where, std::string_view text,
                      Clock& clock, Instant end, Duration patience) {
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(socket.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      break;
    } else if (!is_later(errno)) {
      return socket_error("cannot write to", where, errno);
    } else if (errno != EINTR && !wait_for(socket.get(), POLLOUT, clock, end)) {
      return no_answer(where, patience);
    }
  }
  return {};
}

// On a listener who may be believed.
Result<UniqueFd> begin_exchange(const std::string& path, const HttpAsk& ask, Clock& clock,
                                Instant end, Duration patience) {
  const std::string text = TRY(text_of(ask));
  UniqueFd socket = TRY(connect_by(path, clock, end, patience));
  TRY(check_listener(socket.get(), path));
  TRY(send_all(socket, path, text, clock, end, patience));
  return socket;
}

// Reads some of the answer, as far as it has come.
Result<void> read_some(const UniqueFd& socket, HttpResponseParser& parser,
                       const std::string& path) {
  std::array<char, 16 << 10> buffer;
  const ssize_t n = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
  if (n < 0 && is_later(errno)) return {};
  if (n > 0)
    parser.put({buffer.data(), static_cast<std::size_t>(n)});
  else
    parser.put_end();
  if (parser.fault().empty()) return {};
  if (n > 0) return Error{Errc::io, fmt::format("what listens on '{}': {}", path, parser.fault())};
  return Error{
      Errc::io,
      fmt::format("the server at '{}' closed the connection before its answer's end", path)};
}

Result<void> add_body(HttpResponse& to, HttpResponseParser& parser, const HttpAsk& ask) {
  to.body += parser.take_body();
  if (to.body.size() <= ask.most_bytes) return {};
  return Error{Errc::io, fmt::format("the answer to {} {} has more than {} bytes: no more are read",
                                     ask.method, ask.target, ask.most_bytes)};
}

// Until there is something to read; false when `stop_fd` can be read, or at `end` where the head
// has not come yet.
bool wait_for_more(const UniqueFd& socket, int stop_fd, Clock& clock, Instant end, bool has_head) {
  while (true) {
    int wait = -1;
    if (!has_head) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now()).count();
      if (left <= 0) return false;
      wait = static_cast<int>(left);
    }
    std::array<pollfd, 2> wanted{pollfd{socket.get(), POLLIN, 0}, pollfd{stop_fd, POLLIN, 0}};
    const int ready = ::poll(wanted.data(), wanted.size(), wait);
    if (ready <= 0) continue;
    return wanted[1].revents == 0;
  }
}

// The whole answer, until `end`.
Result<HttpResponse> whole_answer(const UniqueFd& socket, const std::string& path,
                                  const HttpAsk& ask, Clock& clock, Instant end,
                                  Duration patience) {
  HttpResponseParser parser(ask.method == "HEAD");
  HttpResponse out;
  while (!parser.is_whole()) {
    if (!wait_for(socket.get(), POLLIN, clock, end)) return no_answer(path, patience);
    TRY(read_some(socket, parser, path));
    TRY(add_body(out, parser, ask));
  }
  HttpResponse head = parser.head();
  head.body = std::move(out.body);
  return head;
}

}  // namespace

std::size_t head_bytes(const HttpAsk& ask) { return head_of(ask).size(); }

Result<HttpResponse> http_call(const std::string& path, const HttpAsk& ask, Duration patience) {
  SystemClock clock;
  const Instant end = clock.now() + patience;
  const UniqueFd socket = TRY(begin_exchange(path, ask, clock, end, patience));
  return whole_answer(socket, path, ask, clock, end, patience);
}

Result<HttpResponse> http_call_on(UniqueFd socket, const std::string& where, const HttpAsk& ask,
                                  Duration patience) {
  SystemClock clock;
  const Instant end = clock.now() + patience;
  TRY(send_all(socket, where, TRY(text_of(ask)), clock, end, patience));
  return whole_answer(socket, where, ask, clock, end, patience);
}

Result<HttpResponse> http_stream(const std::string& path, const HttpAsk& ask, int stop_fd,
                                 const std::function<bool(std::string_view piece)>& take) {
  SystemClock clock;
  const Instant end = clock.now() + kStreamPatience;
  const UniqueFd socket = TRY(begin_exchange(path, ask, clock, end, kStreamPatience));
  HttpResponseParser parser(false);
  HttpResponse out;
  bool begun = false;
  while (!parser.is_whole()) {
    if (!wait_for_more(socket, stop_fd, clock, end, parser.has_head())) {
      if (parser.has_head()) return parser.head();
      if (clock.now() >= end) return no_answer(path, kStreamPatience);
      return Error{Errc::interrupted, fmt::format("'{}': ended before it answered", path)};
    }
    TRY(read_some(socket, parser, path));
    if (!parser.has_head()) continue;
    if (parser.head().status != 200) {
      TRY(add_body(out, parser, ask));
      continue;
    }
    if (!std::exchange(begun, true) && !take("")) return parser.head();
    const std::string piece = parser.take_body();
    if (!piece.empty() && !take(piece)) return parser.head();
  }
  HttpResponse head = parser.head();
  head.body = std::move(out.body);
  return head;
}

}  // namespace derate
