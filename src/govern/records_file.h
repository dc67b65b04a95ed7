// The records of a governor as a file.
#pragma once

#include <string>

#include "base/result.h"
#include "base/text_file.h"
#include "core/record.h"

namespace derate {

// `--records FILE`: one JSON line a tick and GPU.
class RecordsFile {
 public:
  static Result<RecordsFile> create(const std::string& path, Instant start);
  Result<void> add(const Record& record);

 private:
  RecordsFile(TextFile file, Instant start) : file_(std::move(file)), start_(start) {}
  TextFile file_;
  Instant start_;
};

}  // namespace derate
