// Commands that change how GPUs are governed, from whoever may ask for them, in the order in which
// they came: the loop does them at the begin of a round.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api/operations.h"
#include "base/clock.h"
#include "base/result.h"

namespace derate {

struct QueuedCommand {
  using Json = nlohmann::ordered_json;

  std::string requester;  // for the log: "uid 0, pid 7"
  Role role = Role::reader;
  const Operation* operation = nullptr;
  Instant deadline{};  // after it nobody waits for the answer: it is not begun any more
  std::function<Result<Json>()> run;
};

class CommandQueue {
 public:
  using Json = nlohmann::ordered_json;
  // That wait for the next round.
  static constexpr std::size_t kMost = 64;

  CommandQueue();
  ~CommandQueue();
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  // From any thread. The answer comes with the next round; what `run` refers to lives until then.
  // Errors: no_permission for a role that the operation does not allow, busy when it is full.
  Result<std::future<Result<Json>>> put(QueuedCommand command);
  bool empty();
  // Answers all that wait with that error.
  void refuse(const Error& why);
  // Does all that came before, on the caller's thread. How many there were.
  std::size_t drain(Clock& clock);

 private:
  struct Waiting;
  std::deque<std::unique_ptr<Waiting>> take();

  std::mutex mutex_;
  std::deque<std::unique_ptr<Waiting>> waiting_;
};

}  // namespace derate
