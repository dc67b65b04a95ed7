// What unprivileged programs ask over the client socket (docs/energy.md): finds the handler of each
// command, and brings answers that take a round or more to who waits for them.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service/control_socket.h"
#include "service/request.h"

namespace derate {

class CommandRouter {
 public:
  using Json = nlohmann::ordered_json;
  // Bytes of a request, where its command allows no more.
  static constexpr std::size_t kLongestRequest = 4 << 10;
  // The fields of the answer beside ok. Empty: later() has it, and it must come.
  using Handler = std::function<std::optional<Result<Json>>(const Json& request, const Peer& peer)>;
  struct Command {
    std::string name;
    std::vector<Field> fields;
    Handler handler;
    std::size_t longest = kLongestRequest;
  };

  CommandRouter() = default;
  CommandRouter(const CommandRouter&) = delete;
  CommandRouter& operator=(const CommandRouter&) = delete;

  // What handlers refer to outlives the desk, or its last request.
  void add(Command command) { commands_.push_back(std::move(command)); }
  // A connection has ended: what it opened goes.
  void on_closed(std::function<void(const Peer&)> hook) { hooks_.push_back(std::move(hook)); }
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
  std::optional<Result<Json>> obey(std::string_view text, const Peer& peer) const;

  std::vector<Command> commands_;
  std::vector<std::function<void(const Peer&)>> hooks_;
  std::vector<std::pair<std::uint64_t, std::string>> late_;
};

}  // namespace derate
