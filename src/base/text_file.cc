#include "base/text_file.h"

#include <cerrno>
#include <cstring>

namespace derate {

Result<TextFile> TextFile::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    return Error{errno == EACCES ? Errc::no_permission : Errc::io,
                 "cannot create '" + path + "': " + std::strerror(errno)};
  return TextFile(path, file);
}

Result<void> TextFile::write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0)
    return Error{Errc::io, "cannot write '" + path_ + "': " + std::strerror(errno)};
  return {};
}

}  // namespace derate
