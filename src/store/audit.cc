#include "store/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

Error audit_error(const std::string& path) {
  const int number = errno;
  const bool denied = number == EACCES || number == EPERM || number == EROFS;
  return {denied ? Errc::no_permission : Errc::io,
          "cannot write '" + path + "': " + std::strerror(number)};
}

Result<void> append_line(const std::string& path, std::size_t largest, const std::string& line) {
  TRY(make_folders(std::filesystem::path(path).parent_path()));
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && static_cast<std::size_t>(info.st_size) >= largest)
    (void)std::rename(path.c_str(), (path + ".1").c_str());
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!file.valid()) return audit_error(path);
  // A single write, so that lines of two processes do not mix.
  if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return audit_error(path);
  return {};
}

}  // namespace

AuditLog AuditLog::on_a_thread(std::string path, std::size_t largest) {
  AuditLog out(std::move(path), largest);
  out.queue_ = std::make_shared<WriteQueue>(out.path_, kMostWaiting);
  return out;
}

std::string audit_line(const AuditEntry& entry) {
  // Of commands and tokens the UUID is empty, as it always was.
  const bool is_gpu = entry.domain.kind == kGpuKind || entry.domain == DomainId{};
  Json json = {{"time_unix_seconds", seconds(entry.time.time_since_epoch())},
               {"who", entry.who},
               {is_gpu ? "uuid" : "domain", is_gpu ? entry.domain.name : to_string(entry.domain)},
               {"what", entry.what}};
  for (const auto& [key, text] : {std::pair("before", &entry.before),
                                  {"after", &entry.after},
                                  {"why", &entry.why},
                                  {"error", &entry.error}})
    if (!text->empty()) json[key] = *text;
  return json_text(json);
}

Result<void> AuditLog::append(const AuditEntry& entry) const {
  std::string line = audit_line(entry) + "\n";
  if (queue_ == nullptr) return append_line(path_, largest_, line);
  return queue_->put([path = path_, largest = largest_, line = std::move(line)] {
    return append_line(path, largest, line);
  });
}

}  // namespace derate
