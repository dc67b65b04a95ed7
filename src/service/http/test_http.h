// A server for tests, and a caller who sends and reads what he likes.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/test_wait.h"
#include "base/unique_fd.h"
#include "base/unix_address.h"
#include "service/http/http_server.h"

namespace derate {

class RawCaller {
 public:
  explicit RawCaller(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = *address_of(path);
    CHECK(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
          0);
  }

  // What the server does not take any more is lost.
  void send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void get(const std::string& target) const {
    send("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  void end_sending() const { ::shutdown(socket_.get(), SHUT_WR); }

  // All that comes until `until` is in it, or the server has closed; empty after `patience`
  // without.
  std::string read_until(std::string_view until,
                         std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    while (in_.find(until) == std::string::npos && !closed_) {
      pollfd wanted{socket_.get(), POLLIN, 0};
      if (::poll(&wanted, 1, static_cast<int>(patience.count())) <= 0) return "";
      char buffer[65536];
      const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (n > 0) in_.append(buffer, static_cast<std::size_t>(n));
      closed_ = n <= 0;
    }
    const std::size_t at = in_.find(until);
    const std::size_t end = at == std::string::npos ? in_.size() : at + until.size();
    const std::string out = in_.substr(0, end);
    in_.erase(0, end);
    return out;
  }
  void skip(std::size_t bytes) {
    char buffer[65536];
    while (in_.size() < bytes && !closed_) {
      const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (n > 0) in_.append(buffer, static_cast<std::size_t>(n));
      closed_ = n <= 0;
    }
    in_.erase(0, bytes);
  }
  std::string read_to_end() { return read_until(std::string("\0never", 6)); }
  bool is_closed() const { return closed_; }
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  std::string in_;
  bool closed_ = false;
};

// "HTTP/1.1 404 Not Found..." as 404; 0: there is none.
inline int status_in(std::string_view answer) {
  if (answer.size() < 12 || !answer.starts_with("HTTP/1.1 ")) return 0;
  return (answer[9] - '0') * 100 + (answer[10] - '0') * 10 + (answer[11] - '0');
}

inline std::size_t count_in(std::string_view text, std::string_view what) {
  std::size_t out = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; ++at) ++out;
  return out;
}

}  // namespace derate
