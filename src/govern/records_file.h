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
  static constexpr std::size_t kMostWaiting = 4096;  // on a thread: further lines are lost

  static Result<RecordsFile> create(const std::string& path, Instant start);
  // From now on add() waits for no disk and no reader. One of this process: a thread does not live
  // on in a child.
  void write_on_a_thread();
  // Errors: io. On a thread the error is that of a line before, or that too many wait.
  Result<void> add(const Record& record);
  // Waits for what is still to be written, for a second at most.
  void finish() { queue_.reset(); }

 private:
  RecordsFile(std::string path, TextFile file, Instant start)
      : path_(std::move(path)), file_(std::make_shared<TextFile>(std::move(file))), start_(start) {}

  std::string path_;
  std::shared_ptr<TextFile> file_;  // with the thread, which may outlive this
  Instant start_;
  std::shared_ptr<WriteQueue> queue_;  // null: they are written at once
};

}  // namespace derate
