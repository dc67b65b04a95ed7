#include "govern/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace derate {
namespace {

Error lock_error(const std::string& path, int number) {
  const bool denied = number == EACCES || number == EPERM || number == EROFS;
  return {denied ? Errc::no_permission : Errc::io,
          fmt::format("cannot lock '{}': {}", path, std::strerror(number))};
}

// Who says that he holds it; he may be between taking it and saying so.
std::string holder_of(int fd) {
  char text[200] = {};
  const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
  const std::string_view holder = trim(std::string_view(text, n > 0 ? static_cast<size_t>(n) : 0));
  return holder.empty() ? "another process" : std::string(holder);
}

std::string lease_path(const std::string& run_folder, const std::string& uuid) {
  return fmt::format("{}/{}.lock", run_folder, uuid);
}

}  // namespace

std::string lease_holder(const std::string& run_folder, const std::string& uuid) {
  const UniqueFd file(::open(lease_path(run_folder, uuid).c_str(), O_RDONLY | O_CLOEXEC));
  return holder_of(file.get());
}

Result<UniqueFd> take_lease(const std::string& run_folder, const std::string& uuid,
                            const std::string& owner) {
  TRY(make_folders(run_folder));
  const std::string path = lease_path(run_folder, uuid);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.valid()) return lock_error(path, errno);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return lock_error(path, errno);
    return Error{Errc::busy, fmt::format("{} is governed by {}", uuid, holder_of(file.get()))};
  }
  // The file stays when the lease ends: one that removed it could remove his successor's.
  if (::ftruncate(file.get(), 0) != 0 ||
      ::pwrite(file.get(), owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size()))
    return lock_error(path, errno);
  return file;
}

}  // namespace derate
