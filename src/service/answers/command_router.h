// What callers ask over a socket (api/operations.h): finds who answers each operation, checks what
// the table says of it, and brings answers that take a round or more to who waits for them.
#pragma once

#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/operations.h"
#include "service/transport/control_socket.h"

namespace derate {

// The line that answers: ok and the answer's fields, or what was wrong, its exit code and the word
// for its kind (word_of()).
std::string answer_text(const Result<nlohmann::ordered_json>& answer);

class CommandRouter {
 public:
  using Json = nlohmann::ordered_json;
  // The fields of the answer beside ok. Empty: later() has it, and it must come.
  using Answer = std::optional<Result<Json>>;

  // `granted`: what callers of the socket may do who have no role of their own.
  explicit CommandRouter(Role granted = Role::user);
  ~CommandRouter();
  Role granted_to(const Peer& peer) const { return peer.role.value_or(granted_); }
  CommandRouter(const CommandRouter&) = delete;
  CommandRouter& operator=(const CommandRouter&) = delete;

  // Who answers the operation: handler(const Request&, const Peer&) gives an Answer, or what makes
  // one. What it refers to outlives the router, or its last request.
  template <class Request, class Handler>
  void add(Handler handler) {
    add(operation<Request>(), Typed<Request, Handler>{std::move(handler)});
  }
  // The same of an operation that the table does not have; it outlives the router.
  void add(const Operation& operation,
           std::function<Answer(const Json& request, const Peer& peer)> handler);
  // A connection has ended: what it opened goes.
  void on_closed(std::function<void(const Peer&)> hook) { hooks_.push_back(std::move(hook)); }
  // Somebody answers that operation.
  bool has(const Operation& operation) const;
  // Answers to connections with numbers of at least `from` go there as soon as they are known, and
  // not to a server's.
  void send_late(std::uint64_t from,
                 std::function<void(std::uint64_t connection, std::string text)> to);
  // The answer to the request that the connection waits for.
  void later(std::uint64_t connection, const Result<Json>& answer);

  // A request, answered with a line of JSON; empty: later. One that is too long, or has more keys
  // or levels than JsonLimits, is refused before it costs anything.
  std::optional<std::string> handle(std::string_view text, const Peer& peer);
  void closed(const Peer& peer) const;
  // Takes in what has come, and gives the answers that are due.
  void serve(ControlServer& server);
  // Gives the answers that are due.
  void answer_late(ControlServer& server);
  // Answers that have come since, by connection: for who serves by other means.
  std::vector<std::pair<std::uint64_t, std::string>> take_late() {
    return std::exchange(late_, {});
  }

 private:
  // Out, which is Answer, is a parameter because Json is no complete type here.
  template <class Request, class Handler, class Out = Answer>
  struct Typed {
    Out operator()(const Json& json, const Peer& peer) const {
      const auto request = request_of<Request>(json);
      if (!request.ok()) return Out(request.error());
      return handler(*request, peer);
    }
    Handler handler;
  };
  struct Handled {
    const Operation* operation;
    std::function<Answer(const Json& request, const Peer& peer)> handler;
  };
  Result<const Handled*> find(const Json& request, std::size_t bytes, Role granted) const;
  Error unknown(const std::string& name, Role granted) const;

  Role granted_;
  std::vector<Handled> handlers_;
  std::vector<std::function<void(const Peer&)>> hooks_;
  std::vector<std::pair<std::uint64_t, std::string>> late_;
  std::uint64_t elsewhere_from_ = std::numeric_limits<std::uint64_t>::max();
  std::function<void(std::uint64_t, std::string)> elsewhere_;
};

}  // namespace derate
