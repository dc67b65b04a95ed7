#include "store/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>

#include "base/background_worker.h"
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
  // One write, so that two processes do not mix their lines.
  if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return audit_error(path);
  return {};
}

}  // namespace

struct AuditLog::Queue {
  // With the thread, which a disk that hangs keeps for longer than anybody waits.
  struct Shared {
    std::mutex mutex;
    std::condition_variable done;
    std::size_t waiting = 0;
    std::optional<Error> failure;  // of the last entry that was written
  };

  ~Queue() {
    std::unique_lock lock(shared->mutex);
    shared->done.wait_for(lock, kEndPatience, [&] { return shared->waiting == 0; });
  }

  Result<void> put(const std::string& path, std::size_t largest, std::string line) {
    {
      const std::lock_guard lock(shared->mutex);
      if (shared->waiting >= kMostWaiting)
        return Error{Errc::io, "the disk of '" + path + "' does not answer: entries are left out"};
      ++shared->waiting;
    }
    worker.post([all = shared, path, largest, line = std::move(line)] {
      auto written = append_line(path, largest, line);
      const std::lock_guard lock(all->mutex);
      all->failure.reset();
      if (!written.ok()) all->failure = std::move(written).error();
      if (--all->waiting == 0) all->done.notify_all();
    });
    const std::lock_guard lock(shared->mutex);
    if (shared->failure) return *shared->failure;
    return {};
  }

  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  BackgroundWorker worker{BackgroundWorker::Where::on_a_thread};
};

AuditLog AuditLog::on_a_thread(std::string path, std::size_t largest) {
  AuditLog out(std::move(path), largest);
  out.queue_ = std::make_shared<Queue>();
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
  if (queue_ != nullptr) return queue_->put(path_, largest_, std::move(line));
  return append_line(path_, largest_, line);
}

}  // namespace derate
