// `--records FILE`: one JSON line a tick and GPU, written as it comes.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/result.h"
#include "core/record.h"

namespace derate::cli {

class RecordsFile {
 public:
  // Errors: no_permission, not_found, io.
  static Result<RecordsFile> create(const std::string& path, Instant start);
  Result<void> add(const Record& record);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  RecordsFile(std::string path, std::FILE* file, Instant start)
      : path_(std::move(path)), file_(file), start_(start) {}
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  Instant start_;
};

}  // namespace derate::cli
