// The one queue of requests that wait for the loop. A request over HTTP waits for its turn in the
// loop's time; a request that changes how GPUs are governed, or the daemon itself, waits for the
// begin of a round, whichever socket it came by, and is done there in the order of arrival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "api/operations.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "service/answers/command_router.h"

namespace derate {

// Whether it waits for the begin of a round.
inline bool waits_for_round(const Operation& operation) {
  return operation.changes >= Changes::gpus;
}

class RequestQueue {
 public:
  // Limits; further requests are refused. Requests over HTTP: kMost in all, kMostOfOneUser of a
  // person. Requests of all sockets that wait for a round: kMostForRound.
  static constexpr std::size_t kMost = 128, kMostOfOneUser = 16, kMostForRound = 64;
  static constexpr std::size_t kKept = 16;  // extra in both totals, for root and operators
  // `derate` waits no longer: giving eight GPUs back takes seconds when some of them hang.
  static constexpr Duration kPatience = std::chrono::seconds(30);
  enum class Door : std::uint8_t { socket, http };

  // `clock` outlives it. `log`: each request that is done, and its caller.
  RequestQueue(Clock& clock, Log log);
  ~RequestQueue();
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // From any thread. `router` answers it, and outlives the queue. Errors: busy.
  Result<void> put(Asked asked, CommandRouter& router, Door door);
  // Something waits for the begin of a round.
  bool has_for_round() const;

  // --- on the loop's thread

  // Answers the oldest request that waits for no round; false: there is none.
  bool serve_one();
  // At the begin of a round: does all that waits for it. One for which nobody waits any more is not
  // begun. Whether there was anything.
  bool do_round();
  // Gives the answers of what was done.
  void answer_round();
  // Answers all that wait with that error.
  void refuse(const Error& why);

 private:
  struct Waiting;
  struct Done;
  std::vector<Waiting> take_for_round();

  Clock& clock_;
  Log log_;
  mutable std::mutex mutex_;  // of waiting_
  std::vector<Waiting> waiting_;
  std::vector<Done> done_;
};

}  // namespace derate
