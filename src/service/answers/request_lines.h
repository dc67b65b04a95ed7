// Requests and answers as lines of JSON: the text side of a control socket, behind which everything
// is a value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service/answers/request_queue.h"
#include "service/transport/control_socket.h"

namespace derate {

class RequestLines {
 public:
  // `router` answers. Requests that wait for the begin of a round go to `queue`; null: none does.
  // Both outlive it.
  explicit RequestLines(CommandRouter& router, RequestQueue* queue = nullptr);
  RequestLines(const RequestLines&) = delete;
  RequestLines& operator=(const RequestLines&) = delete;

  // If this returns an error for a caller, all its requests are refused.
  using Refuse = std::function<std::optional<Error>(const Peer& peer)>;
  void refuse(Refuse whom) { refuse_ = std::move(whom); }
  // A request, answered with a line; empty: later. One that is too long, or has more keys or levels
  // than JsonLimits, is refused before it costs anything.
  std::optional<std::string> handle(std::string_view text, const Peer& peer);
  void closed(const Peer& peer) const { router_.closed(peer); }
  // Takes in what has come, and gives the answers that are due.
  void serve(ControlServer& server);
  // Gives the answers that are due.
  void answer_late(ControlServer& server);
  // Answers that have come since, by connection: for who serves by other means.
  std::vector<std::pair<std::uint64_t, std::string>> take_late() {
    return std::exchange(late_, {});
  }

 private:
  Result<Asked> read(std::string_view text, const Peer& peer) const;

  CommandRouter& router_;
  RequestQueue* queue_;
  Refuse refuse_ = [](const Peer&) { return std::nullopt; };
  std::vector<std::pair<std::uint64_t, std::string>> late_;
};

}  // namespace derate
