// Writes to a file whose disk may not answer, in their order on a thread of their own: the loop
// that puts them waits for none.
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

  // Of more than `most` that wait, further ones are lost. `path` is for messages.
  WriteQueue(std::string path, std::size_t most);
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;
  // Waits for what is still to be written, for kEndPatience at most.
  ~WriteQueue();

  // What `write` refers to lives as long as itself: it may outlive the queue. Errors: io, too many
  // wait, and this one is lost; else that of the last write that was done.
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
