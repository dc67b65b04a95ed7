// Operations that change how GPUs are governed, or the daemon itself: whoever asks for them, they
// are done in the order in which they came, at the begin of a round.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/requests.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/answers/command_queue.h"
#include "service/answers/command_router.h"

namespace derate {

class QueuedCommands {
 public:
  using Json = nlohmann::ordered_json;
  // `derate` waits no longer: giving eight GPUs back takes seconds when some of them hang.
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // What is added goes to `router`. Both outlive it. `log`: who asked for what.
  QueuedCommands(Clock& clock, CommandRouter& router, Log log);
  ~QueuedCommands();
  QueuedCommands(const QueuedCommands&) = delete;
  QueuedCommands& operator=(const QueuedCommands&) = delete;

  // obey(const Request&, const std::string& who) gives the answer, a Result<Json>; what it refers
  // to lives until then.
  template <class Request, class Obey>
  void add(Obey obey) {
    router_.add<Request>([this, obey](const Request& request, const Peer& peer) {
      return put(operation<Request>(), request_text(request), peer,
                 [obey, request](const std::string& who) { return obey(request, who); });
    });
  }

  // At the begin of a round: does what has been asked. Whether there was anything.
  bool drain() { return queue_.drain(clock_) > 0; }
  // Gives the answers of what was done.
  void answer();
  CommandQueue& queue() { return queue_; }

 private:
  struct Asked;
  CommandRouter::Answer put(const Operation& operation, const std::string& text, const Peer& peer,
                            std::function<Result<Json>(const std::string& who)> obey);

  Clock& clock_;
  CommandRouter& router_;
  Log log_;
  CommandQueue queue_;
  std::vector<std::unique_ptr<Asked>> asked_;
};

}  // namespace derate
