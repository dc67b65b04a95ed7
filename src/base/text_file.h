// Text files that a verb writes as it goes: opened before the work begins, so that a bad name is
// reported then. They are written in place: the name may be a pipe, a device or a link.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/result.h"

namespace derate {

class TextFile {
 public:
  // Errors: no_permission, io.
  static Result<TextFile> create(const std::string& path);
  // Written through to the kernel. Errors: io.
  Result<void> write(const std::string& text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TextFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace derate
