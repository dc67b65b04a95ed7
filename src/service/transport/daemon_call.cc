#include "service/transport/daemon_call.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "api/requests.h"
#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/log.h"
#include "base/unix_address.h"
#include "config/paths.h"
#include "service/transport/control_socket.h"
#include "service/transport/unix_socket.h"

namespace derate {
namespace {

constexpr Duration kDaemonPatience = std::chrono::seconds(10);

// What a daemon meant that tells no code, as older ones did not; several mean the same to a caller.
Errc errc_of_exit(int code) {
  for (const Errc each : {Errc::invalid_argument, Errc::not_found, Errc::not_supported,
                          Errc::no_permission, Errc::busy, Errc::bad_data, Errc::gpu_stuck})
    if (exit_code_of(each) == code) return each;
  return Errc::io;
}

template <class T>
T field(const Json& json, const char* key, T otherwise) {
  const auto at = json.find(key);
  if (at == json.end() || (std::is_same_v<T, int> ? !at->is_number_integer() : !at->is_string()))
    return otherwise;
  return at->get<T>();
}

}  // namespace

Result<Json> daemon_answer(const std::string& text) {
  const Json answer = parse_json(text);
  if (!answer.is_object()) return Error{Errc::io, "the daemon's answer is not understood"};
  if (const auto ok = answer.find("ok"); ok != answer.end() && *ok == true) return answer;
  const auto code = errc_of(field<std::string>(answer, "code", ""));
  return Error{code.value_or(errc_of_exit(field(answer, "exit_code", 1))),
               field<std::string>(answer, "error", "refused")};
}

Result<std::string> first_answering(
    const std::vector<std::string>& sockets,
    const std::function<Result<void>(const std::string& socket)>& call) {
  std::optional<Error> refused;
  for (const std::string& socket : sockets) {
    const auto answer = call(socket);
    if (answer.ok() && refused) print_line("derate", refused->message);
    if (answer.ok()) return socket;
    if (answer.error().code == Errc::no_permission && !refused)
      refused = answer.error();
    else if (answer.error().code != Errc::not_found)
      return answer.error();
  }
  if (refused) return *refused;
  return Error{Errc::not_found,
               fmt::format("derated is not running: nobody listens on '{}'", sockets.back())};
}

Result<DaemonLine> find_daemon() {
  const auto call = [](const std::string& socket) -> Result<void> {
    TRY(control_call(socket, request_text(GpuList{}), kDaemonPatience));
    return {};
  };
  return DaemonLine{TRY(first_answering(client_sockets(), call))};
}

Result<Json> ask(const DaemonLine& line, const std::string& request) {
  return daemon_answer(TRY(control_call(line.socket, request, kDaemonPatience)));
}

void DaemonCall::begin(const std::string& request) {
  // The answer to what is under way must not be taken for this one's.
  if (connection_ == Connection::of_each_request || under_way()) socket_ = UniqueFd();
  out_ = request + "\n";
  in_.clear();
  until_ = clock_.now() + kDaemonPatience;
  answered_ = false;
}

short DaemonCall::events() const {
  return static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT));
}

// A daemon that hangs takes no more callers at some time: not yet is no error.
Result<void> DaemonCall::connect() {
  auto socket = connect_at(line_.socket);
  if (!socket.ok() && socket.error().code == Errc::busy) return {};
  UniqueFd reached = TRY(std::move(socket));
  TRY(check_listener(reached.get(), line_.socket));
  socket_ = std::move(reached);
  return {};
}

// Empty: not yet.
std::optional<Result<std::string>> DaemonCall::exchange() {
  if (!socket_.valid())
    if (auto reached = connect(); !reached.ok()) return std::move(reached).error();
  const auto later = [] { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; };
  while (socket_.valid() && !out_.empty()) {
    const ssize_t n = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0 && later()) break;
    if (n <= 0) return socket_error("cannot write to", line_.socket, errno);
    out_.erase(0, static_cast<std::size_t>(n));
  }
  while (socket_.valid() && out_.empty()) {
    char buffer[4096];
    const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (n < 0 && later()) break;
    if (n <= 0)
      return Error{Errc::io, fmt::format("the daemon at '{}' closed the line without an answer",
                                         line_.socket)};
    in_.append(buffer, static_cast<std::size_t>(n));
    if (in_.back() != '\n') continue;
    in_.pop_back();
    answered_ = true;
    return std::exchange(in_, {});
  }
  if (clock_.now() < *until_) return std::nullopt;
  return no_answer(line_.socket, kDaemonPatience);
}

std::optional<Result<Json>> DaemonCall::look() {
  if (!until_) return std::nullopt;
  auto text = exchange();
  if (!text) return std::nullopt;
  until_.reset();
  if (connection_ == Connection::of_each_request || !text->ok()) socket_ = UniqueFd();
  if (!text->ok()) return std::optional<Result<Json>>(std::move(*text).error());
  return std::optional<Result<Json>>(daemon_answer(**text));
}

}  // namespace derate
