#include "integ/kube/unary_server.h"

#ifdef DERATE_KUBE

#include <fmt/format.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"

namespace derate {
// Not anonymous: UnaryServer::State, which has a name outside this file, has members of these
// types.
namespace unary_serving {

// Calls of a connection at the same time; gRPC clients wait with more.
constexpr std::uint32_t kMostServedStreams = 4;
// A path may be longer: no method's is, so that its beginning is enough to refuse it.
constexpr std::size_t kLongestMethod = 256;
// Frames that a connection sends before others have their turn, of 16 KiB at most.
constexpr int kFramesOfATurn = 64;
// A connection that has no call gives its place away after this time.
constexpr Duration kLeastPlaceTime = std::chrono::seconds(1);
constexpr int kLongestWaitMs = 1000;
// When the process has no descriptor left.
constexpr Duration kNoDescriptorTime = std::chrono::milliseconds(100);

using SharedMessage = std::shared_ptr<const std::string>;

// Shared by all connections.
struct UnaryServing {
  UnaryServerOptions options;
  std::mutex mutex = {};
  SharedMessage answer = {};  // with gRPC's prefix; null: none

  void set(SharedMessage message) {
    const std::lock_guard lock(mutex);
    answer.swap(message);
  }
  SharedMessage get() {
    const std::lock_guard lock(mutex);
    return answer;
  }
};

struct ServedSessionDeleter {
  void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
};
struct ServedCallbacksDeleter {
  void operator()(nghttp2_session_callbacks* callbacks) const {
    nghttp2_session_callbacks_del(callbacks);
  }
};

nghttp2_nv served_field(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));  // nghttp2 only reads
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

// A call: a stream of HTTP/2.
struct ServedCall {
  std::string path, method, content_type;  // of the head; a path may be cut
  std::size_t received = 0;
  SharedMessage answer = {};
  std::size_t sent = 0;
};

class ServedConnection {
 public:
  ServedConnection(UnaryServing& serving, UniqueFd socket, const Clock& clock)
      : serving_(serving), socket_(std::move(socket)), clock_(clock), completed_(clock.now()) {}
  ServedConnection(const ServedConnection&) = delete;
  ServedConnection& operator=(const ServedConnection&) = delete;

  // False: nghttp2 has no memory.
  bool begin();

  int fd() const { return socket_.get(); }
  bool has_call() const { return !calls_.empty(); }
  Instant completed() const { return completed_; }  // the last call, or the connection's begin

  // As poll() takes it. Nothing is read while there is something to send: a caller that does not
  // read makes no answers to its frames pile up.
  short wanted() const { return static_cast<short>(has_output() ? POLLOUT : POLLIN); }
  // False: it is to be closed.
  bool go_on(short ready);
  // Says so, where the caller reads: its next call begins on another connection.
  void end();

 private:
  // Callbacks of nghttp2.
  static int on_begin(nghttp2_session*, const nghttp2_frame* frame, void* its);
  static int on_field(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                      std::size_t size, const std::uint8_t* value, std::size_t value_size,
                      std::uint8_t, void* its);
  static int on_bytes(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t*,
                      std::size_t size, void* its);
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* its);
  static int on_end(nghttp2_session*, std::int32_t id, std::uint32_t error, void* its);
  static ssize_t give_answer(nghttp2_session* session, std::int32_t id, std::uint8_t* buffer,
                             std::size_t size, std::uint32_t* flags, nghttp2_data_source* source,
                             void*);

  bool has_output() const {
    return !pending_.empty() || nghttp2_session_want_write(session_.get()) != 0;
  }
  bool receive();
  bool send();
  int respond(std::int32_t id, ServedCall& call);
  int refuse(std::int32_t id, std::string_view grpc_status, std::string_view why);

  UnaryServing& serving_;
  UniqueFd socket_;
  const Clock& clock_;
  std::map<std::int32_t, ServedCall> calls_;
  std::unique_ptr<nghttp2_session, ServedSessionDeleter> session_;
  std::string pending_;   // frames of which some bytes have not been sent
  std::size_t sent_ = 0;  // of them
  Instant completed_;
};

bool ServedConnection::begin() {
  nghttp2_session_callbacks* made = nullptr;
  if (nghttp2_session_callbacks_new(&made) != 0) return false;
  const std::unique_ptr<nghttp2_session_callbacks, ServedCallbacksDeleter> owner(made);
  nghttp2_session_callbacks_set_on_begin_headers_callback(made, on_begin);
  nghttp2_session_callbacks_set_on_header_callback(made, on_field);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, on_bytes);
  nghttp2_session_callbacks_set_on_frame_recv_callback(made, on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(made, on_end);
  nghttp2_session* session = nullptr;
  if (nghttp2_session_server_new(&session, made, this) != 0) return false;
  session_.reset(session);
  const std::array settings = {
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMostServedStreams},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 16 << 10}};
  return nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) == 0;
}

bool ServedConnection::go_on(short ready) {
  if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0 && !has_output() && !receive()) return false;
  if (!send()) return false;
  if ((ready & (POLLHUP | POLLERR)) != 0) return false;  // nobody reads any more
  return has_output() || nghttp2_session_want_read(session_.get()) != 0;
}

void ServedConnection::end() {
  if (nghttp2_session_terminate_session(session_.get(), NGHTTP2_NO_ERROR) == 0) (void)send();
}

bool ServedConnection::receive() {
  std::array<std::uint8_t, 16384> buffer;
  const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  const auto size = static_cast<std::size_t>(got);
  return nghttp2_session_mem_recv(session_.get(), buffer.data(), size) == got;
}

bool ServedConnection::send() {
  for (int frames = 0; frames < kFramesOfATurn;) {
    if (pending_.empty()) {
      const std::uint8_t* data = nullptr;
      const auto size = nghttp2_session_mem_send(session_.get(), &data);
      if (size < 0) return false;
      if (size == 0) return true;
      pending_.assign(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
      sent_ = 0;
      ++frames;
    }
    const ssize_t n = ::send(socket_.get(), pending_.data() + sent_, pending_.size() - sent_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<std::size_t>(n);
    if (sent_ == pending_.size()) pending_.clear();
  }
  return true;
}

int ServedConnection::on_begin(nghttp2_session*, const nghttp2_frame* frame, void* its) {
  auto& here = *static_cast<ServedConnection*>(its);
  if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
    here.calls_.try_emplace(frame->hd.stream_id);
  return 0;
}

int ServedConnection::on_field(nghttp2_session*, const nghttp2_frame* frame,
                               const std::uint8_t* name, std::size_t size,
                               const std::uint8_t* value, std::size_t value_size, std::uint8_t,
                               void* its) {
  auto& here = *static_cast<ServedConnection*>(its);
  const auto call = here.calls_.find(frame->hd.stream_id);
  if (call == here.calls_.end()) return 0;
  const std::string_view key(reinterpret_cast<const char*>(name), size);
  const std::string_view text(reinterpret_cast<const char*>(value),
                              std::min(value_size, kLongestMethod));
  if (key == ":path") call->second.path = text;
  if (key == ":method") call->second.method = text;
  if (key == "content-type") call->second.content_type = text;
  return 0;
}

int ServedConnection::on_bytes(nghttp2_session* session, std::uint8_t, std::int32_t id,
                               const std::uint8_t*, std::size_t size, void* its) {
  auto& here = *static_cast<ServedConnection*>(its);
  const auto call = here.calls_.find(id);
  if (call == here.calls_.end()) return 0;
  call->second.received += size;
  if (call->second.received <= here.serving_.options.most_request_bytes) return 0;
  call->second.received = 0;  // what comes before the caller knows is counted anew
  return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_ENHANCE_YOUR_CALM) == 0
             ? 0
             : NGHTTP2_ERR_CALLBACK_FAILURE;
}

int ServedConnection::on_frame(nghttp2_session*, const nghttp2_frame* frame, void* its) {
  auto& here = *static_cast<ServedConnection*>(its);
  const bool of_a_call = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
  if (!of_a_call || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
  const auto call = here.calls_.find(frame->hd.stream_id);
  if (call == here.calls_.end()) return 0;
  return here.respond(frame->hd.stream_id, call->second) == 0 ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

int ServedConnection::on_end(nghttp2_session*, std::int32_t id, std::uint32_t error, void* its) {
  auto& here = *static_cast<ServedConnection*>(its);
  if (here.calls_.erase(id) > 0 && error == NGHTTP2_NO_ERROR) here.completed_ = here.clock_.now();
  return 0;
}

ssize_t ServedConnection::give_answer(nghttp2_session* session, std::int32_t id,
                                      std::uint8_t* buffer, std::size_t size, std::uint32_t* flags,
                                      nghttp2_data_source* source, void*) {
  auto& call = *static_cast<ServedCall*>(source->ptr);
  const std::size_t part = std::min(size, call.answer->size() - call.sent);
  std::copy_n(call.answer->data() + call.sent, part, buffer);
  call.sent += part;
  if (call.sent < call.answer->size()) return static_cast<ssize_t>(part);
  *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
  const auto ok = served_field("grpc-status", "0");
  if (nghttp2_submit_trailer(session, id, &ok, 1) != 0)
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  return static_cast<ssize_t>(part);
}

// A call that fails has one frame HEADERS for an answer (gRPC over HTTP2, Trailers-Only).
int ServedConnection::refuse(std::int32_t id, std::string_view grpc_status, std::string_view why) {
  const std::array fields = {
      served_field(":status", "200"), served_field("content-type", "application/grpc"),
      served_field("grpc-status", grpc_status), served_field("grpc-message", why)};
  return nghttp2_submit_response(session_.get(), id, fields.data(), fields.size(), nullptr);
}

int ServedConnection::respond(std::int32_t id, ServedCall& call) {
  if (call.method != "POST" || !call.content_type.starts_with("application/grpc")) {
    const auto no_grpc = served_field(":status", "415");
    return nghttp2_submit_response(session_.get(), id, &no_grpc, 1, nullptr);
  }
  const auto& methods = serving_.options.methods;
  if (std::find(methods.begin(), methods.end(), call.path) == methods.end())
    return refuse(id, "12", "no such method here");
  call.answer = serving_.get();
  if (!call.answer) return refuse(id, "9", "there is no answer yet");
  const std::array fields = {served_field(":status", "200"),
                             served_field("content-type", "application/grpc")};
  nghttp2_data_provider body{};
  body.source.ptr = &call;  // which lives as long as its stream
  body.read_callback = give_answer;
  return nghttp2_submit_response(session_.get(), id, fields.data(), fields.size(), &body);
}

}  // namespace unary_serving

using namespace unary_serving;

// --- the server's thread -------------------------------------------------------------------------

struct UnaryServer::State {
  using Connections = std::vector<std::unique_ptr<ServedConnection>>;

  State(UniqueFd socket, UnaryServerOptions options, const Clock& time)
      : serving{std::move(options)}, listening(std::move(socket)), clock(time) {}

  void run();
  // False: the server is to end.
  bool take_turn();
  void close_idle();
  Connections::iterator place_to_give_away();
  void take_caller();

  UnaryServing serving;
  UniqueFd listening;
  UniqueFd stop = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const Clock& clock;
  Connections connections = {};
  Instant takes_again{};  // callers
  std::thread thread = {};
};

void UnaryServer::State::run() {
  while (take_turn()) continue;
  connections.clear();
}

bool UnaryServer::State::take_turn() {
  close_idle();
  const bool is_full = connections.size() >= serving.options.most_connections;
  const bool takes =
      clock.now() >= takes_again && (!is_full || place_to_give_away() != connections.end());
  std::vector<pollfd> fds{{stop.get(), POLLIN, 0}, {takes ? listening.get() : -1, POLLIN, 0}};
  for (const auto& each : connections) fds.push_back({each->fd(), each->wanted(), 0});
  const auto idle = std::chrono::ceil<std::chrono::milliseconds>(serving.options.idle_time);
  const auto wait = std::min<std::int64_t>(kLongestWaitMs, std::max<std::int64_t>(idle.count(), 1));
  const bool short_wait = clock.now() < takes_again;
  const int ready = ::poll(fds.data(), fds.size(), short_wait ? 10 : static_cast<int>(wait));
  if (ready < 0) return errno == EINTR;
  if (fds[0].revents != 0) return false;
  for (std::size_t i = 0; i + 2 < fds.size(); ++i)
    if (fds[i + 2].revents != 0 && !connections[i]->go_on(fds[i + 2].revents))
      connections[i].reset();
  std::erase(connections, nullptr);
  if (fds[1].revents != 0) take_caller();
  return true;
}

void UnaryServer::State::close_idle() {
  const Instant now = clock.now();
  std::erase_if(connections, [&](const auto& each) {
    const bool is_idle = now - each->completed() >= serving.options.idle_time;
    if (is_idle) each->end();
    return is_idle;
  });
}

UnaryServer::State::Connections::iterator UnaryServer::State::place_to_give_away() {
  auto out = connections.end();
  const Instant now = clock.now();
  for (auto each = connections.begin(); each != connections.end(); ++each) {
    if ((*each)->has_call() || now - (*each)->completed() < kLeastPlaceTime) continue;
    if (out == connections.end() || (*each)->completed() < (*out)->completed()) out = each;
  }
  return out;
}

void UnaryServer::State::take_caller() {
  UniqueFd caller(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!caller.valid()) {
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
      takes_again = clock.now() + kNoDescriptorTime;
    return;
  }
  if (connections.size() >= serving.options.most_connections) {
    const auto place = place_to_give_away();
    if (place == connections.end()) return;
    (*place)->end();
    connections.erase(place);
  }
  auto made = std::make_unique<ServedConnection>(serving, std::move(caller), clock);
  if (made->begin()) connections.push_back(std::move(made));
}

UnaryServer::UnaryServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<UnaryServer>> UnaryServer::create(UniqueFd listening,
                                                         UnaryServerOptions options,
                                                         const Clock& clock) {
  auto state = std::make_unique<State>(std::move(listening), std::move(options), clock);
  if (!state->stop.valid())
    return Error{Errc::io, fmt::format("cannot make an eventfd: {}", std::strerror(errno))};
  state->thread = std::thread([&here = *state] { here.run(); });
  return std::unique_ptr<UnaryServer>(new UnaryServer(std::move(state)));
}

UnaryServer::~UnaryServer() {
  CHECK(::eventfd_write(state_->stop.get(), 1) == 0);
  state_->thread.join();
}

// Whether it is compressed, no, and its size (gRPC over HTTP2, Length-Prefixed-Message).
void UnaryServer::set_answer(const std::string& message) {
  std::string prefix(5, '\0');
  for (std::size_t i = 0; i < 4; ++i)
    prefix[1 + i] = static_cast<char>(message.size() >> (8 * (3 - i)) & 0xff);
  state_->serving.set(std::make_shared<const std::string>(prefix + message));
}

void UnaryServer::clear_answer() { state_->serving.set(nullptr); }

}  // namespace derate

#else

namespace derate {

struct UnaryServer::State {};

UnaryServer::UnaryServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
UnaryServer::~UnaryServer() = default;

Result<std::unique_ptr<UnaryServer>> UnaryServer::create(UniqueFd, UnaryServerOptions,
                                                         const Clock&) {
  return Error{Errc::not_supported, "Derate was built without libnghttp2"};
}
void UnaryServer::set_answer(std::string) {}
void UnaryServer::clear_answer() {}

}  // namespace derate

#endif
