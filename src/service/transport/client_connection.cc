#include "service/transport/client_connection.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"

namespace derate {

std::string caller_name(const Peer& peer) {
  return peer.token.empty() ? fmt::format("uid {}", peer.uid) : "token " + peer.token;
}

Json whole_answer(const Result<Json>& answer) {
  Json out = {{"ok", answer.ok()}};
  if (answer.ok()) {
    out.update(*answer);
  } else {
    out["error"] = answer.error().message;
    out["exit_code"] = exit_code_of(answer.error().code);
    out["code"] = word_of(answer.error().code);
  }
  return out;
}

void send_refusal(const UniqueFd& socket, const Error& error) {
  const std::string line = json_text(whole_answer(error)) + "\n";
  (void)::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL);
}

bool ClientConnection::takes_requests() const {
  return !waits && !ended && out.empty() && !has_request();
}

bool ClientConnection::has_work() const {
  if (broken || waits) return false;
  if (!out.empty()) return ready;
  return left > 0 && (has_request() || (ready && !ended));
}

bool ClientConnection::has_said_all() const {
  return ended && !waits && out.empty() && !has_request();
}

void ClientConnection::read(std::size_t longest, const SocketCloser& closer, const Clock& clock) {
  char buffer[4096];
  while (in.size() <= longest) {
    const ssize_t n = closer.receive(socket, buffer);
    if (n > 0) {
      heard = clock.now();
      in.append(buffer, static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    broken = broken || (n < 0 && errno == EPERM);  // files have come; no request has any
    ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    break;
  }
  end = in.find('\n');
}

void ClientConnection::write() {
  while (!out.empty()) {
    const ssize_t n = ::send(socket.get(), out.data(), out.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      broken = broken || (errno != EAGAIN && errno != EWOULDBLOCK);
      return;
    }
    out.erase(0, static_cast<std::size_t>(n));
  }
}

std::optional<std::string_view> ClientConnection::next_request(std::size_t longest,
                                                               const SocketCloser& closer,
                                                               const Clock& clock) {
  write();
  if (ready && takes_requests()) read(longest, closer, clock);
  ready = false;
  if (broken || waits || !out.empty()) return std::nullopt;
  // Where the next request begins is not known after one that is too long: the connection ends.
  if (std::min(end, in.size()) > longest) {
    send_refusal(socket,
                 {Errc::invalid_argument,
                  fmt::format("a request has more than {} bytes: no more are allowed", longest)});
    broken = true;
    return std::nullopt;
  }
  if (!has_request()) return std::nullopt;
  --left;
  return std::string_view(in).substr(0, end);
}

void ClientConnection::reply(std::optional<std::string> text) {
  in.erase(0, end + 1);
  end = in.find('\n');
  waits = !text;
  if (text) out = *std::move(text) + "\n";
  write();
}

void ClientConnection::reply_late(const std::string& text) {
  waits = false;
  out = text + "\n";
  write();
}

// Who waits or does not read is not listened to: what it says stays in the kernel, which is
// bounded.
void ClientConnection::watch(const UniqueFd& epoll) {
  std::uint32_t wanted = 0;
  if (takes_requests()) wanted |= EPOLLIN;
  if (!out.empty()) wanted |= EPOLLOUT;
  if (wanted == std::exchange(watched, wanted)) return;
  epoll_event event{wanted, {.u64 = peer.connection}};
  (void)::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, socket.get(), &event);
}

}  // namespace derate
