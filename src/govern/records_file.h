// The records of a governor as a file.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/text_file.h"
#include "base/write_queue.h"
#include "core/record.h"

namespace derate {

// `--records FILE`: one JSON line a tick and GPU.
class RecordsFile {
 public:
  static constexpr std::size_t kMostWaiting = 4096;  // with a thread: further lines are dropped

  static Result<RecordsFile> create(const std::string& path, Instant start);
  // From now on add() does not wait for a disk or a reader. Call it in the process that adds: a
  // thread does not survive a fork.
  void write_on_a_thread();
  // Errors: io. With a thread, the error is that of an earlier line, or that too many lines wait.
  Result<void> add(const Record& record);
  // Waits for the pending lines, for a second at most.
  void finish() { queue_.reset(); }

 private:
  RecordsFile(std::string path, TextFile file, Instant start)
      : path_(std::move(path)), file_(std::make_shared<TextFile>(std::move(file))), start_(start) {}

  std::string path_;
  std::shared_ptr<TextFile> file_;  // shared with the thread, which may outlive this object
  Instant start_;
  std::shared_ptr<WriteQueue> queue_;  // null: lines are written at once
};

}  // namespace derate
