#include "service/http/http_connection.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

namespace derate {
namespace {

constexpr std::size_t kReadAtOnce = 8 << 10;
constexpr std::size_t kWriteAtOnce = 256 << 10;
// A body of this length does not go out in one piece with its head.
constexpr std::size_t kLongBody = 16 << 10;

// Of what this server and its handlers answer.
std::string_view reason_of(int status) {
  constexpr std::pair<int, std::string_view> kReasons[] = {
      {200, "OK"},
      {202, "Accepted"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {417, "Expectation Failed"},
      {421, "Misdirected Request"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {502, "Bad Gateway"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [each, reason] : kReasons)
    if (each == status) return reason;
  return "Other";
}

}  // namespace

void HttpOutput::add(std::string piece) {
  if (piece.empty()) return;
  bytes += piece.size();
  pieces.push_back(std::move(piece));
}

void HttpOutput::took(std::size_t n) {
  sent += n;
  bytes -= n;
  if (sent < pieces.front().size()) return;
  pieces.erase(pieces.begin());
  sent = 0;
}

void HttpOutput::drop() {
  if (sent == 0) pieces.clear();
  if (!pieces.empty()) pieces.resize(1);
  bytes = pieces.empty() ? 0 : pieces.front().size() - sent;
}

// --- in ------------------------------------------------------------------------------------------

bool HttpConnection::takes_input() const {
  if (broken || ended) return false;
  return stage == Stage::drain || (stage == Stage::request && out.empty());
}

// If files come with a message, the connection ends: no request has files.
void HttpConnection::take_in(const SocketCloser& closer, Instant now) {
  if (in.empty()) {
    char buffer[kReadAtOnce];
    const ssize_t n = closer.receive(socket, buffer);
    if (n < 0 && errno == EINTR) return;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      readable = false;
      return;
    }
    if (n <= 0) {
      ended = true;
      return;
    }
    // Less than there was room for: that was all.
    readable = static_cast<std::size_t>(n) == sizeof buffer;
    heard = now;
    in.assign(buffer, static_cast<std::size_t>(n));
  }
  if (!parser.has_begun()) begun = now;
  const std::size_t used = parser.put(in);
  in.erase(0, used);
  if (in.empty()) in = {};
  held = in.size() + parser.bytes();
}

void HttpConnection::drain(const SocketCloser& closer) {
  char buffer[kReadAtOnce];
  const ssize_t n = closer.receive(socket, buffer);
  if (n < 0 && errno == EINTR) return;
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) ended = true;
  readable = n == static_cast<ssize_t>(sizeof buffer);
  in = {};
  held = 0;
}

// --- out -----------------------------------------------------------------------------------------

void HttpConnection::add(std::string piece, Instant now) {
  if (out.empty()) progressed = now;
  out.add(std::move(piece));
}

std::string HttpConnection::head_of(const HttpResponse& response) const {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_of(response.status));
  if (date != nullptr) add_field(head, "Date", *date);
  if (!response.content_type.empty()) add_field(head, "Content-Type", response.content_type);
  for (const auto& [name, value] : response.fields) add_field(head, name, value);
  return head;
}

void HttpConnection::ask_for_body(Instant now) {
  add("HTTP/1.1 100 Continue\r\n\r\n", now);
  write(now);
}

// The next request may come, unless this was the last.
void HttpConnection::end_request(Instant now) {
  if (std::exchange(ends_after, false)) {
    stage = Stage::last;
    return;
  }
  stage = Stage::request;
  parser = HttpRequestParser(limits);
  held = in.size();
  saw_head = false;
  payer.reset();
  heard = now;
}

void HttpConnection::respond(const HttpResponse& response, Instant now) {
  const HttpRequest& request = parser.request();
  // Where an unfinished request ends is not known.
  ends_after =
      ends_after || response.close || !request.keep_alive || !parser.is_whole() || is_provisional;
  std::string head = head_of(response);
  head += fmt::format("Content-Length: {}\r\n", response.body.size());
  if (ends_after)
    head += "Connection: close\r\n";
  else if (parser.is_1_0())
    head += "Connection: keep-alive\r\n";
  head += "\r\n";
  const bool has_body = request.method != "HEAD";
  const bool is_long = has_body && response.body.size() >= kLongBody;
  if (has_body && !is_long) head += response.body;
  add(std::move(head), now);
  if (is_long) add(response.body, now);
  end_request(now);
  write(now);
}

std::string HttpConnection::framed(std::string piece) const {
  if (!is_chunked) return piece;
  return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
}

void HttpConnection::begin_stream(HttpStream stream, Instant now) {
  const bool is_head = parser.request().method == "HEAD";
  is_chunked = !parser.is_1_0();
  ends_after = ends_after || !is_chunked || !parser.request().keep_alive || is_provisional;
  has_events = stream.content_type.starts_with("text/event-stream");
  std::string head = head_of({.content_type = stream.content_type});
  add_field(head, "Cache-Control", "no-store");
  add_field(head, "X-Content-Type-Options", "nosniff");
  if (is_chunked) add_field(head, "Transfer-Encoding", "chunked");
  if (ends_after) add_field(head, "Connection", "close");
  add(head + "\r\n", now);
  if (is_head) {
    end_request(now);
  } else {
    next = std::move(stream.next);
    this->stage = Stage::stream;
    asks = true;
    woken = false;
  }
  write(now);
}

void HttpConnection::ask_stream(Instant now) {
  woken = false;
  auto piece = next();
  asks = piece && !piece->empty();
  if (!piece) {
    next = {};
    has_events = false;
    if (is_chunked) add("0\r\n\r\n", now);
    end_request(now);
  } else if (!piece->empty()) {
    add(framed(*std::move(piece)), now);
  }
  write(now);
}

void HttpConnection::send_heartbeat(Instant now) {
  add(framed(": \n\n"), now);
  write(now);
}

void HttpConnection::drop_stream(Instant now) {
  out.drop();
  next = {};
  add(framed("event: dropped\ndata: this reader is too slow\n\n"), now);
  if (is_chunked) add("0\r\n\r\n", now);
  ends_after = true;
  end_request(now);
  write(now);
}

void HttpConnection::write(Instant now) {
  std::size_t most = kWriteAtOnce;
  while (writable && !broken && !out.empty() && most > 0) {
    const std::string_view piece = std::string_view(out.pieces.front()).substr(out.sent, most);
    const ssize_t n = ::send(socket.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      writable = false;
    } else if (n <= 0) {
      broken = true;
    } else {
      out.took(static_cast<std::size_t>(n));
      most -= static_cast<std::size_t>(n);
      progressed = now;
    }
  }
}

// Who waits or does not read is not listened to: what it says stays in the kernel, which is
// bounded. What there is no time for is not asked for again.
void HttpConnection::watch(const UniqueFd& epoll) {
  std::uint32_t wanted = 0;
  if (takes_input() && in.empty() && !readable) wanted |= EPOLLIN;
  if (!out.empty() && !writable) wanted |= EPOLLOUT;
  if (wanted == std::exchange(watched, wanted)) return;
  epoll_event event{wanted, {.u64 = peer.connection}};
  (void)::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, socket.get(), &event);
}

}  // namespace derate
