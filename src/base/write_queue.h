// Writes to a file whose disk may not answer, in their order on a thread of their own: the loop
// that queues them never blocks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"

namespace derate {

class WriteQueue {
 public:
  static constexpr Duration kEndPatience = std::chrono::seconds(1);

  // If more than `most` writes wait, further ones are dropped. `path` is for messages.
  WriteQueue(std::string path, std::size_t most);
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;
  // Waits for the pending writes, for kEndPatience at most.
  ~WriteQueue();

  // All that `write` refers to must live as long as `write`, which may outlive the queue. Errors:
  // io if too many writes wait (this one is dropped); otherwise the error of the newest write that
  // was done.
  Result<void> put(std::function<Result<void>()> write);

 private:
  struct Shared;
  struct Thread;

  std::string path_;
  std::size_t most_;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace derate
