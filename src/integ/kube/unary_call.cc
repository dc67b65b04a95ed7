#include "integ/kube/unary_call.h"

#ifdef DERATE_KUBE

#include <fcntl.h>
#include <fmt/format.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

// What gRPC puts before a message: whether it is compressed, and its size (gRPC over HTTP2,
// Length-Prefixed-Message).
constexpr std::size_t kPrefix = 5;
// Frames that are no answer (pings, settings, unknown ones) may be this many bytes besides.
constexpr std::size_t kMostOther = 1 << 20;

// What is known of the call so far; the library's callbacks fill it.
struct State {
  std::string out;  // the request, prefix and all
  std::size_t sent = 0;
  std::string prefix;        // of the answer
  std::size_t answered = 0;  // bytes of the message
  std::size_t most_bytes = 0;
  TakePiece take;
  std::string http_status, grpc_status, grpc_message;
  std::optional<Error> refused;  // by `take`
  bool closed = false, too_long = false;
};

struct SessionDeleter {
  void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
};
using Session = std::unique_ptr<nghttp2_session, SessionDeleter>;

std::string framed(std::string_view message) {
  std::string out(kPrefix, '\0');
  for (std::size_t i = 0; i < 4; ++i)
    out[1 + i] = static_cast<char>(message.size() >> (8 * (3 - i)) & 0xff);
  return out.append(message);
}

int on_header(nghttp2_session*, const nghttp2_frame*, const std::uint8_t* name, std::size_t size,
              const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* user) {
  auto& state = *static_cast<State*>(user);
  const std::string_view key(reinterpret_cast<const char*>(name), size);
  std::string text(reinterpret_cast<const char*>(value), std::min<std::size_t>(value_size, 200));
  if (key == ":status")
    state.http_status = std::move(text);
  else if (key == "grpc-status")
    state.grpc_status = std::move(text);
  else if (key == "grpc-message")
    state.grpc_message = std::move(text);
  return 0;
}

int on_data(nghttp2_session*, std::uint8_t, std::int32_t, const std::uint8_t* data,
            std::size_t size, void* user) {
  auto& state = *static_cast<State*>(user);
  std::string_view piece(reinterpret_cast<const char*>(data), size);
  const std::size_t of_prefix = std::min(piece.size(), kPrefix - state.prefix.size());
  state.prefix.append(piece.substr(0, of_prefix));
  piece.remove_prefix(of_prefix);
  state.answered += piece.size();
  state.too_long = state.answered > state.most_bytes;
  if (state.too_long) return NGHTTP2_ERR_CALLBACK_FAILURE;
  if (piece.empty() || state.prefix[0] != 0) return 0;  // what is compressed is refused at the end
  if (auto taken = state.take(piece); !taken.ok()) state.refused = std::move(taken).error();
  return state.refused ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

int on_close(nghttp2_session*, std::int32_t, std::uint32_t, void* user) {
  static_cast<State*>(user)->closed = true;
  return 0;
}

ssize_t give_request(nghttp2_session*, std::int32_t, std::uint8_t* buffer, std::size_t size,
                     std::uint32_t* flags, nghttp2_data_source* source, void*) {
  auto& state = *static_cast<State*>(source->ptr);
  const std::size_t part = std::min(size, state.out.size() - state.sent);
  std::copy_n(state.out.data() + state.sent, part, buffer);
  state.sent += part;
  if (state.sent == state.out.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
  return static_cast<ssize_t>(part);
}

Error failed(int code) {
  return {Errc::bad_data, fmt::format("HTTP/2: {}", nghttp2_strerror(code))};
}

nghttp2_nv header(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));  // it only reads
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

Result<Session> begin(const UnaryCall& what, State& state) {
  nghttp2_session_callbacks* callbacks = nullptr;
  if (const int code = nghttp2_session_callbacks_new(&callbacks); code != 0) return failed(code);
  const std::unique_ptr<nghttp2_session_callbacks, decltype(&nghttp2_session_callbacks_del)> owner(
      callbacks, &nghttp2_session_callbacks_del);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
  nghttp2_session* made = nullptr;
  if (const int code = nghttp2_session_client_new(&made, callbacks, &state); code != 0)
    return failed(code);
  Session session(made);
  const std::array settings = {nghttp2_settings_entry{NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
  nghttp2_submit_settings(made, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  const std::array headers = {
      header(":method", "POST"),         header(":scheme", "http"),
      header(":path", what.method),      header(":authority", "localhost"),
      header("te", "trailers"),          header("content-type", "application/grpc"),
      header("user-agent", "derate/0.1")};
  nghttp2_data_provider body{};
  body.source.ptr = &state;
  body.read_callback = give_request;
  const int stream =
      nghttp2_submit_request(made, nullptr, headers.data(), headers.size(), &body, nullptr);
  if (stream < 0) return failed(stream);
  return session;
}

Error from_errno(const UnaryCall& what, int wrong) {
  const Errc code = wrong == ENOENT                     ? Errc::not_found
                    : wrong == EACCES || wrong == EPERM ? Errc::no_permission
                                                        : Errc::io;
  return {code, fmt::format("{}: {}", what.socket, std::strerror(wrong))};
}

Result<UniqueFd> connect_to(const UnaryCall& what) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (what.socket.empty() || what.socket.size() >= sizeof address.sun_path)
    return Error{Errc::invalid_argument,
                 fmt::format("socket '{}': allowed is a path of 1 to {} bytes", what.socket,
                             sizeof address.sun_path - 1)};
  std::memcpy(address.sun_path, what.socket.data(), what.socket.size());
  UniqueFd out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out.valid()) return from_errno(what, errno);
  // A local socket connects at once or says EAGAIN when its queue is full.
  if (::connect(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return from_errno(what, errno);
  return out;
}

// Waits until the socket can be read or `writing`, at most until `deadline`.
Result<void> wait_for(const UnaryCall& what, int fd, bool writing, Instant deadline,
                      const Clock& clock) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now()).count();
    if (left <= 0)
      return Error{
          Errc::query_failed,
          fmt::format("{}: no answer in {} ms", what.socket,
                      std::chrono::floor<std::chrono::milliseconds>(what.timeout).count())};
    std::array<pollfd, 2> fds = {
        pollfd{fd, static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN), 0},
        pollfd{what.stop_fd, POLLIN, 0}};
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(std::min<long>(left, 1000)));
    if (ready < 0 && errno != EINTR) return from_errno(what, errno);
    if (ready > 0 && fds[1].revents != 0) return Error{Errc::interrupted, "told to stop"};
    if (ready > 0) return {};
  }
}

// Sends what the library has to say, as far as the socket takes it; what is left stays in
// `pending`.
Result<void> send_some(const UnaryCall& what, int fd, nghttp2_session& session,
                       std::string& pending) {
  for (;;) {
    if (pending.empty()) {
      const std::uint8_t* data = nullptr;
      const auto size = nghttp2_session_mem_send(&session, &data);
      if (size < 0) return failed(static_cast<int>(size));
      if (size == 0) return {};
      pending.assign(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
    }
    const ssize_t sent = ::send(fd, pending.data(), pending.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    // One that closed may have said why: the answer is still to be read.
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return {};
    if (sent < 0) return from_errno(what, errno);
    pending.erase(0, static_cast<std::size_t>(sent));
  }
}

// Reads what is there; false at the connection's end.
Result<bool> receive_some(const UnaryCall& what, int fd, nghttp2_session& session,
                          const State& state, std::size_t& received) {
  std::array<std::uint8_t, 16384> buffer{};
  const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got < 0) return from_errno(what, errno);
  if (got == 0) return false;
  received += static_cast<std::size_t>(got);
  const auto used =
      nghttp2_session_mem_recv(&session, buffer.data(), static_cast<std::size_t>(got));
  if (state.refused) return *state.refused;
  if (state.too_long || received > state.most_bytes + kMostOther)
    return Error{Errc::bad_data, fmt::format("an answer of more than {} bytes", what.most_bytes)};
  if (used < 0) return failed(static_cast<int>(used));
  return true;
}

Result<void> exchange(const UnaryCall& what, State& state, const Clock& clock) {
  const Instant deadline = clock.now() + what.timeout;
  const UniqueFd fd = TRY(connect_to(what));
  const Session session = TRY(begin(what, state));
  std::string pending;
  std::size_t received = 0;
  while (!state.closed) {
    TRY(send_some(what, fd.get(), *session, pending));
    TRY(wait_for(what, fd.get(), !pending.empty(), deadline, clock));
    if (!TRY(receive_some(what, fd.get(), *session, state, received))) break;
  }
  if (!state.closed) return Error{Errc::io, "the connection ended before the answer did"};
  return {};
}

// Whether a message was answered, and the whole of it.
Result<void> check_answer(const State& state) {
  if (state.http_status != "200")
    return Error{Errc::bad_data,
                 fmt::format("HTTP status '{}', allowed is 200", state.http_status)};
  if (state.grpc_status == "12")  // UNIMPLEMENTED
    return Error{Errc::not_supported, "the server does not have this method (gRPC status 12)"};
  if (state.grpc_status != "0")
    return Error{Errc::query_failed,
                 fmt::format("gRPC status '{}' {}", state.grpc_status, state.grpc_message)};
  const std::string_view prefix = state.prefix;
  if (prefix.size() < kPrefix) return Error{Errc::bad_data, "an answer without a message"};
  if (prefix[0] != 0) return Error{Errc::bad_data, "a compressed message, which nobody asked for"};
  std::size_t size = 0;
  for (const char byte : prefix.substr(1)) size = size << 8 | static_cast<std::uint8_t>(byte);
  if (size != state.answered)
    return Error{Errc::bad_data, fmt::format("a message of {} bytes, and its prefix says {}",
                                             state.answered, size)};
  return {};
}

}  // namespace

bool can_call() { return true; }

Result<void> call(const UnaryCall& what, const TakePiece& take, const Clock& clock) {
  State state;
  state.out = framed(what.request);
  state.most_bytes = what.most_bytes;
  state.take = take;
  TRY(exchange(what, state, clock).with(what.method));
  return check_answer(state).with(what.method);
}

}  // namespace derate

#else

namespace derate {

bool can_call() { return false; }

Result<void> call(const UnaryCall& what, const TakePiece&, const Clock&) {
  return Error{Errc::not_supported, what.method + ": Derate was built without libnghttp2"};
}

}  // namespace derate

#endif

namespace derate {

Result<std::string> call(const UnaryCall& what, const Clock& clock) {
  std::string out;
  const auto take = [&out](std::string_view piece) {
    out += piece;
    return Result<void>();
  };
  TRY(call(what, take, clock));
  return out;
}

}  // namespace derate
