#include "base/safe_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/unique_fd.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

Error not_safe(std::string message) { return {Errc::no_permission, std::move(message)}; }

Error of_another(const std::string& path, uid_t owner) {
  return not_safe("'" + path + "' belongs to user " + std::to_string(owner) +
                  ", who is neither root nor user " + std::to_string(::geteuid()));
}

std::string mode_of(const struct stat& info) {
  char text[16];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(info.st_mode & 07777));
  return text;
}

// `part` of the folder, which was looked at.
Result<void> check_part(const fs::path& folder, const struct stat& info, const fs::path& part) {
  if ((info.st_mode & S_IWOTH) == 0) return {};
  if ((info.st_mode & S_ISVTX) == 0)
    return not_safe("everybody may exchange what lies in '" + folder.string() + "' (mode " +
                    mode_of(info) +
                    "): allowed is a folder that others may not write to (chmod o-w), or a sticky "
                    "one (chmod +t)");
  struct stat found {};
  if (::lstat(part.c_str(), &found) != 0 || is_trusted_user(found.st_uid)) return {};
  return of_another(part.string(), found.st_uid);
}

}  // namespace

bool is_trusted_user(uid_t user) { return user == 0 || user == ::geteuid(); }

Result<void> check_way(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  fs::path at = whole.root_path();
  for (const fs::path& name : whole.relative_path()) {
    struct stat folder {};
    if (name.empty() || ::stat(at.c_str(), &folder) != 0) return {};
    const fs::path part = at / name;
    TRY(check_part(at, folder, part));
    at = part;
  }
  return {};
}

Result<void> make_own_folder(const std::string& path, mode_t closed) {
  TRY(check_way(path));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    const bool denied = errno == EACCES || errno == EPERM || errno == EROFS;
    return Error{denied ? Errc::no_permission : Errc::io,
                 "cannot create the folder '" + path + "': " + std::strerror(errno)};
  }
  // What is opened is what is looked at: nothing can come in between.
  const UniqueFd folder(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid() && (errno == ENOTDIR || errno == ELOOP))
    return not_safe("'" + path + "' is a link or no folder: remove it");
  struct stat info {};
  if (!folder.valid() || ::fstat(folder.get(), &info) != 0)
    return not_safe("cannot open the folder '" + path + "': " + std::strerror(errno));
  if (info.st_uid != ::geteuid())
    return not_safe("'" + path + "' belongs to user " + std::to_string(info.st_uid) +
                    ", not to user " + std::to_string(::geteuid()));
  if ((info.st_mode & closed) == 0) return {};
  return not_safe("'" + path + "' is open to others (mode " + mode_of(info) +
                  "): see that what lies in it is yours, then chmod 700 it");
}

Result<void> check_socket_file(const std::string& path) {
  struct stat found {
  }, folder{};
  if (::lstat(path.c_str(), &found) != 0) return {};
  if (S_ISLNK(found.st_mode)) return not_safe("'" + path + "' is a link");
  if (!is_trusted_user(found.st_uid)) return of_another(path, found.st_uid);
  const std::string parent = fs::path(path).parent_path();
  if (::stat(parent.empty() ? "." : parent.c_str(), &folder) == 0 &&
      !is_trusted_user(folder.st_uid))
    return of_another(parent, folder.st_uid);
  return check_way(path);
}

std::string own_temporary_folder() {
  const char* given = ::secure_getenv("TMPDIR");
  const bool usable = given != nullptr && *given == '/';
  return std::string(usable ? given : "/tmp") + "/derate-" + std::to_string(::geteuid());
}

}  // namespace derate
