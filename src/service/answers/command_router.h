// Router of requests to the handlers of their operations (api/operations.h), and of late answers,
// which take a round or more, to their connections. Requests and answers are values: the transport
// of their text is no matter of the router's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/operations.h"
#include "service/transport/client_connection.h"

namespace derate {

// A request whose caller may make it (check_role()), read once.
struct Asked {
  const Operation* operation = nullptr;
  AnyRequest request;
  Peer peer;
};

class CommandRouter {
 public:
  using Json = nlohmann::ordered_json;
  // The fields of the answer beside ok. Empty: later() has it, and it must come.
  using Answer = std::optional<Result<Json>>;

  // `granted`: what callers of the socket may do who have no role of their own.
  explicit CommandRouter(Role granted = Role::user);
  ~CommandRouter();
  Role granted() const { return granted_; }
  CommandRouter(const CommandRouter&) = delete;
  CommandRouter& operator=(const CommandRouter&) = delete;

  // Who answers the operations: handler(const Request&, const Peer&) gives an Answer, or what makes
  // one. What it refers to outlives the router, or its last request.
  template <class... Requests, class Handler>
  void add(Handler handler) {
    (handlers_.push_back({&operation<Requests>(), Typed<Requests, Handler>{handler}}), ...);
  }
  // A connection has ended: what it opened goes.
  void on_closed(std::function<void(const Peer&)> hook) { hooks_.push_back(std::move(hook)); }
  // Somebody answers that operation.
  bool has(const Operation& operation) const;
  // That there is nobody who answers what was called so.
  Error unknown(const std::string& name) const;

  // Called with each caller whose request was refused with no_permission, and the reason.
  using Refused = std::function<void(const Peer& peer, const std::string& why)>;
  void on_refused(Refused hook) { refused_ = std::move(hook); }
  void refused(const Peer& peer, const Error& why) const;

  // Called before each request is answered.
  void on_handle(std::function<void(const Operation&)> hook) { handled_ = std::move(hook); }

  Answer handle(const Asked& asked) const;
  void closed(const Peer& peer) const;

  // Late answers to connections with numbers of at least `from` go there; of several that begin
  // below a number, the nearest has it.
  using Receiver = std::function<void(std::uint64_t connection, const Result<Json>& answer)>;
  void send_late(std::uint64_t from, Receiver to);
  // The answer to the request that the connection waits for.
  void later(std::uint64_t connection, const Result<Json>& answer) const;

 private:
  // Out, which is Answer, is a parameter because Json is no complete type here.
  template <class Request, class Handler, class Out = Answer>
  struct Typed {
    Out operator()(const Asked& asked) const {
      return handler(std::get<Request>(asked.request), asked.peer);
    }
    Handler handler;
  };
  struct Handled {
    const Operation* operation;
    std::function<Answer(const Asked& asked)> handler;
  };
  const Handled* find(const Operation& operation) const;

  Role granted_;
  std::vector<Handled> handlers_;
  std::vector<std::function<void(const Peer&)>> hooks_;
  Refused refused_ = [](const Peer&, const std::string&) {};
  std::function<void(const Operation&)> handled_ = [](const Operation&) {};
  std::map<std::uint64_t, Receiver> receivers_;  // by the first number
};

}  // namespace derate
