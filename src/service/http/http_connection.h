// A caller's connection to an HTTP server: requests that come in, one at a time, and what goes out.
// Nothing here waits for a caller.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "service/http/http_parser.h"
#include "service/http/http_server.h"
#include "service/transport/client_connection.h"
#include "service/transport/socket_closer.h"

namespace derate {

// What has not gone out yet, by pieces that are sent whole or not at all.
struct HttpOutput {
  std::vector<std::string> pieces;
  std::size_t sent = 0;   // of the first
  std::size_t bytes = 0;  // that are left of all

  bool empty() const { return pieces.empty(); }
  void add(std::string piece);
  void took(std::size_t n);
  // All but one that is half sent.
  void drop();
};

struct HttpConnection {
  enum class Stage : std::uint8_t {
    request,  // waits for one, or takes it in
    turn,     // has a whole one, whose turn comes
    later,    // of which the answer comes later
    stream,   // whose answer comes in pieces
    last,     // what goes out is the last
    drain,    // all has gone out; what still comes is thrown away, until the caller hangs up
  };

  UniqueFd socket;  // does not block
  Peer peer;        // whose connection's number is this one's own
  Stage stage = Stage::request;
  HttpKind kind = HttpKind::control;  // of the request
  std::optional<uid_t> payer = {};    // of the request: the person whose share it takes
  bool saw_head = false;              // of the request
  bool ends_after = false;            // the request's answer is the connection's last
  bool has_events = false;            // the stream is text/event-stream
  bool is_chunked = false;            // the stream
  bool asks = false;                  // the stream may have more
  bool woken = false;                 // and is to be asked whatever has not gone out
  bool is_provisional = false;        // beyond the places: for one request of kind health
  bool is_turned_away = false;        // has no place: it only gets the refusal
  bool readable = true, writable = true;
  bool ended = false;         // will say no more
  bool broken = false;        // nothing can be sent to it any more
  std::uint32_t watched = 0;  // events
  std::size_t held = 0;       // bytes of requests
  HttpOutput out = {};
  std::string in = {};   // of the next request
  Instant heard{};       // the last byte, or the end of the last answer
  Instant begun{};       // the request, or the end of the connection
  Instant progressed{};  // the last byte that went out, or the first that was to
  HttpRequestParser::Limits limits = {};
  HttpRequestParser parser{limits};
  Peer caller = {};                                       // with the number of the request
  const std::string* date = nullptr;                      // as answers tell it; outlives this
  std::function<std::optional<std::string>()> next = {};  // piece of the stream

  uid_t share() const { return payer.value_or(peer.share()); }

  // --- in
  // Something may be taken in: bytes that are here, or in the kernel.
  bool takes_input() const;
  bool has_input() const { return takes_input() && (readable || !in.empty()); }
  // Takes in some of it, as far as the end of one request.
  void take_in(const SocketCloser& closer, Instant now);
  // Reads and forgets.
  void drain(const SocketCloser& closer);
  bool has_said_all() const {
    return ended && in.empty() && out.empty() && (stage == Stage::request || stage == Stage::drain);
  }
  bool is_idle() const { return stage == Stage::request && !parser.has_begun() && out.empty(); }

  // --- out
  void respond(const HttpResponse& response, Instant now);
  // "100 Continue".
  void ask_for_body(Instant now);
  void begin_stream(HttpStream stream, Instant now);
  // Asks for the next piece, which may have been the last.
  void ask_stream(Instant now);
  void send_heartbeat(Instant now);
  // The last event of a reader that is too slow: `dropped`.
  void drop_stream(Instant now);
  // What it takes of what has not gone out, some of it at a time.
  void write(Instant now);

  // Has `epoll` tell of what it can go on with.
  void watch(const UniqueFd& epoll);

 private:
  void add(std::string piece, Instant now);
  std::string framed(std::string piece) const;
  std::string head_of(const HttpResponse& response) const;
  void end_request(Instant now);
};

}  // namespace derate
