// An HTTP server on one listening socket and one thread, for callers that are not trusted: places
// and time are shared by user, and kinds of load never share a queue.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "service/http/http_message.h"
#include "service/transport/caller_shares.h"
#include "service/transport/client_connection.h"
#include "service/transport/socket_closer.h"

namespace derate {

// Kinds of load, each with its own rate of a user, requests in flight and share of time in each
// 100 ms. The order is that in which they are served. Who gets no place is still answered what is
// of kind health.
enum class HttpKind : std::uint8_t { health, control, stream };

// A request's answer is one of three.
struct HttpLater {};  // HttpServer::answer() has it
struct HttpStream {
  std::string content_type = "text/event-stream";
  // The next piece of what is sent, asked for when the one before has gone out and after each
  // wake_streams(), whatever has not gone out then (of other types than text/event-stream only when
  // it has). An empty text: nothing new; an empty optional: that was the last.
  std::function<std::optional<std::string>()> next;
};
using HttpReply = std::variant<HttpResponse, HttpLater, HttpStream>;

// A request, and who asks. `peer.connection` is its own number, by which it is answered later; it
// is never that of another request.
struct HttpCall {
  const HttpRequest& request;
  const Peer& peer;
};

struct HttpServerOptions {
  // Which kind a request is of, by its head alone.
  std::function<HttpKind(const HttpRequest& head)> kind_of;
  // On the server's thread; it waits for nothing.
  std::function<HttpReply(const HttpCall& call)> handle;
  // Over TCP, for each new caller: the user whose share it takes, if known. All callers of unknown
  // user count as one user, (uid_t)-1.
  std::function<std::optional<uid_t>(const UniqueFd& caller)> user_of = [](const UniqueFd&) {
    return std::nullopt;
  };
  // Over TCP, before the caller's bytes are read: the answer that turns the caller away. Empty: the
  // caller is served.
  std::function<std::optional<HttpResponse>(const Peer& caller)> turn_away = [](const Peer&) {
    return std::nullopt;
  };
  // Whether the caller passes on requests of others. Its connection is not closed after refusals,
  // as these may have been for another of them.
  std::function<bool(const Peer& peer)> carries = [](const Peer&) { return false; };
  // The person whose rates, later answers and unread bytes a request counts against, by its head.
  std::function<uid_t(const HttpRequest& head, const Peer& peer)> share_of =
      [](const HttpRequest&, const Peer& peer) { return peer.share(); };
  // The caller of a request that is to be answered later, or of a stream, has gone: it hung up, was
  // too slow, or asked for the head alone. Called once; not for what has been answered or has
  // ended, nor when the server goes.
  std::function<void(const Peer& peer)> gone = [](const Peer&) {};
  // Bounds; what is beyond is refused: 429 (of a user) or 503 (of all) with Retry-After, 431, 413,
  // 414, 408, or closed. A user who goes on after as many refusals a second is not heard.
  std::size_t most_head_bytes = 8 << 10, most_body_bytes = 64 << 10;
  // The person of each caller. `user` below is a person: ids of /etc/subuid count as their owner.
  CallerShares shares = {};
  // Shared by all servers of the process; null: this server has its own.
  std::shared_ptr<SocketCloser> closer = nullptr;
  std::size_t most_connections = 512;  // of all; kKeptPlaces more for root and operators
  std::size_t most_of_a_user = 128;    // connections
  std::size_t most_streams = 64, most_streams_of_a_user = 16;
  Duration head_time = std::chrono::seconds(10);       // from a request's first byte to its last
  Duration idle_time = std::chrono::seconds(60);       // of a connection between requests
  Duration write_time = std::chrono::seconds(10);      // for a reader that takes nothing
  Duration heartbeat_time = std::chrono::seconds(15);  // of a stream of events without any
  std::size_t most_unread_stream_bytes = 256 << 10;    // a slower reader is dropped
  double requests_a_second_of_a_user = 200;            // and as many at once
};

class HttpServer {
 public:
  // Serves on a thread of its own until it goes. `socket` listens already (listen_unix(),
  // listen_loopback(), listen_tcp()).
  static Result<std::unique_ptr<HttpServer>> create(UniqueFd socket, Clock& clock,
                                                    HttpServerOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // From any thread. The answer to the request of that number, which may be a stream; nothing where
  // its caller has gone.
  void answer(std::uint64_t number, HttpReply reply);
  // From any thread: streams may have something new.
  void wake_streams();

  struct Figures {
    std::uint64_t requests = 0, refused = 0, connections = 0, streams = 0, dropped_streams = 0;
  };
  Figures figures() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A socket that nobody listens on any more is replaced. Errors: busy, no_permission, io.
Result<UniqueFd> listen_unix(const std::string& path, ::mode_t mode);
// On a loopback address alone, "127.0.0.1:9410" or "[::1]:9410"; port 0: any.
// Errors: invalid_argument for another address, busy, no_permission, io.
Result<UniqueFd> listen_loopback(const std::string& address);
// On any address of this machine, which other machines may reach: "0.0.0.0:9410", "10.0.0.7:9410",
// "[::]:9410" (of IPv4, too); port 0: any. Names are not resolved. Errors: as above.
Result<UniqueFd> listen_tcp(const std::string& address);

}  // namespace derate
