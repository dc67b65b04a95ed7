#include "records_file.h"

#include <cerrno>
#include <cstring>

#include "govern/record_json.h"

namespace derate::cli {

Result<RecordsFile> RecordsFile::create(const std::string& path, Instant start) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    return Error{errno == EACCES ? Errc::no_permission : Errc::io,
                 "cannot create '" + path + "': " + std::strerror(errno)};
  return RecordsFile(path, file, start);
}

Result<void> RecordsFile::add(const Record& record) {
  const std::string line = record_json(record, start_) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0)
    return Error{Errc::io, "cannot write '" + path_ + "': " + std::strerror(errno)};
  return {};
}

}  // namespace derate::cli
