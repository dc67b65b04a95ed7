#include "govern/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "core/process_id.h"

namespace derate {
namespace {

constexpr int kMostTries = 8;  // each time that the file has become another one meanwhile
constexpr Duration kReplaceTime = std::chrono::seconds(1);

// Only EACCES and EPERM are about this user's rights; a read-only folder is an io error.
Error lock_error(const std::string& path, int number) {
  const bool denied = number == EACCES || number == EPERM;
  return {denied ? Errc::no_permission : Errc::io,
          fmt::format("cannot lock '{}': {}", path, std::strerror(number))};
}

std::string lease_path(const std::string& run_folder, const std::string& name) {
  return fmt::format("{}/{}.lock", run_folder, name);
}

// --- processes -----------------------------------------------------------------------------------

// Offsets in /proc/PID/stat from the state on: fields 3, 22 and 52 of proc_pid_stat(5).
constexpr std::size_t kStateField = 0, kStartField = 19, kStatusField = 49;

std::vector<std::string> stat_fields(std::int64_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/stat", pid));
  if (!text.ok()) return {};
  // The program's name, in brackets, may hold anything.
  std::string_view rest = *text;
  rest.remove_prefix(std::min(rest.size(), rest.rfind(')') + 2));
  std::vector<std::string> out;
  for (const std::string_view field : split(rest.substr(0, rest.find('\n')), ' '))
    out.emplace_back(field);
  return out;
}

bool has_ended(const std::vector<std::string>& fields) {
  return fields[kStateField] == "Z" || fields[kStateField] == "X";
}

// Who started it, whatever it may do since; its folder in /proc may belong to another.
std::optional<uid_t> user_of(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/status", pid));
  if (!text.ok()) return std::nullopt;
  for (const std::string_view line : split(*text, '\n')) {
    if (!line.starts_with("Uid:")) continue;
    const auto fields = split(line, '\t');
    const auto uid = fields.size() > 1 ? parse_integer(fields[1]) : std::nullopt;
    if (uid && *uid >= 0) return static_cast<uid_t>(*uid);
  }
  return std::nullopt;
}

// --- who is named in the file --------------------------------------------------------------------

struct Named {
  std::string name;   // empty: the holder may be between the lock and the writing
  ProcessId process;  // without a pid, or without a start as an earlier version wrote it: not known
};

Named named_in(int fd) {
  char text[300] = {};
  const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
  const std::string_view all(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  const auto lines = split(all, '\n');
  Named out{std::string(trim(lines[0])), {}};
  std::string_view pid = out.name;
  pid.remove_prefix(std::min(pid.size(), pid.rfind(' ') + 1));
  if (lines.size() > 1) {
    const auto words = split(trim(lines[1]), ' ');
    pid = words[0];
    if (words.size() > 1) out.process.started = parse_number<std::uint64_t>(words[1]).value_or(0);
  }
  if (const auto number = parse_integer(pid); number && *number > 0) out.process.pid = *number;
  return out;
}

bool lives(const Named& named) {
  const ProcessId& process = named.process;
  const std::uint64_t start = process.pid > 0 ? process_start(process.pid) : 0;
  return start != 0 && (process.started == 0 || process.started == start);
}

LeaseHolder holder_of(int fd) {
  const Named named = named_in(fd);
  if (named.name.empty()) return {"another process", fd >= 0};
  return {named.name, lives(named)};
}

Error held(const std::string& name, int fd) {
  const LeaseHolder holder = holder_of(fd);
  return {Errc::busy, fmt::format("{} is {} by {}", name, holder.lives ? "governed" : "held",
                                  describe(holder))};
}

Result<void> write_holder(int fd, const std::string& path, const std::string& owner) {
  const std::string text = fmt::format("{}\n{} {}\n", owner, ::getpid(), process_start(::getpid()));
  if (::ftruncate(fd, 0) != 0) return lock_error(path, errno);
  if (::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) return {};
  // The lock is what counts. If there is no room for the name, the holder is not known.
  if (errno == ENOSPC || errno == EDQUOT) return {};
  return lock_error(path, errno);
}

// --- the file ------------------------------------------------------------------------------------

Result<UniqueFd> open_lease(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file.valid()) return lock_error(path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return lock_error(path, errno);
  if (!S_ISREG(info.st_mode))
    return Error{Errc::io, fmt::format("cannot lock '{}': it is no plain file", path)};
  return file;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_at(int fd, const std::string& path) {
  struct stat mine {
  }, there{};
  return ::fstat(fd, &mine) == 0 && ::lstat(path.c_str(), &there) == 0 && same_file(mine, there);
}

// Nobody else can have opened it.
bool is_private(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

// The processes that have locked the file, by the kernel's list; not those that wait for it.
// "7: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF"; a process that waits has "->" after "7:".
std::vector<pid_t> takers_of(const struct stat& file) {
  std::vector<pid_t> out;
  const auto list = read_file("/proc/locks");
  if (!list.ok()) return out;
  const std::string wanted =
      fmt::format("{:02x}:{:02x}:{}", major(file.st_dev), minor(file.st_dev), file.st_ino);
  for (const std::string_view line : split(*list, '\n')) {
    std::vector<std::string_view> words;
    for (const std::string_view word : split(line, ' '))
      if (!word.empty()) words.push_back(word);
    if (words.size() < 6 || words[1] != "FLOCK" || words[5] != wanted) continue;
    if (const auto pid = parse_integer(words[4])) out.push_back(static_cast<pid_t>(*pid));
  }
  return out;
}

// Whether those who hold a file that others could open are none of ours. A governor is a process of
// the file's owner; one that has died and left its lease to its worker is named in the file. In
// doubt it is a governor's.
bool strangers_hold(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  const std::int64_t named = named_in(fd).process.pid;
  const auto takers = takers_of(info);
  for (const pid_t taker : takers) {
    const auto user = user_of(taker);
    if (user ? *user == info.st_uid || *user == ::geteuid() : taker <= 0 || taker == named)
      return false;
  }
  return !takers.empty();
}

// One process at a time replaces files of this folder; nobody else's could ever be opened.
Result<UniqueFd> alone_in(const std::string& run_folder) {
  const std::string path = run_folder + "/leases.lock";
  UniqueFd file = TRY(open_lease(path));
  if (!is_private(file.get()))
    return Error{Errc::io, fmt::format("'{}': wanted is a file of mode 0600", path)};
  SystemClock clock;
  const Instant end = clock.now() + kReplaceTime;
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return lock_error(path, errno);
    if (clock.now() >= end)
      return Error{Errc::busy, fmt::format("another process holds '{}'", path)};
    clock.sleep_until(clock.now() + std::chrono::milliseconds(1));
  }
  return file;
}

// A new file in the place of one that others can open, or opened while they could: a lock on the
// old one is worth nothing then. Governors of this version see that what they locked is not there
// any more; one of an earlier version that holds the old one keeps it.
Result<void> replace(const std::string& run_folder, const std::string& path,
                     const std::string& name) {
  const UniqueFd alone = TRY(alone_in(run_folder));
  const UniqueFd old = TRY(open_lease(path));
  if (is_private(old.get())) return {};  // somebody else was faster
  if (::flock(old.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return lock_error(path, errno);
    if (!strangers_hold(old.get())) return held(name, old.get());
  }
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const UniqueFd file(
      ::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid() || std::rename(fresh.c_str(), path.c_str()) != 0)
    return lock_error(path, errno);
  return {};
}

}  // namespace

std::uint64_t process_start(std::int64_t pid) {
  const auto fields = stat_fields(pid);
  if (fields.size() <= kStartField || has_ended(fields)) return 0;
  return parse_number<std::uint64_t>(fields[kStartField]).value_or(0);
}

std::optional<int> status_of_ended(std::int64_t pid) {
  const auto fields = stat_fields(pid);
  if (fields.empty() || !has_ended(fields)) return std::nullopt;
  if (fields.size() <= kStatusField) return SIGKILL;
  return parse_number<int>(fields[kStatusField]).value_or(SIGKILL);
}

std::string describe(const LeaseHolder& holder) {
  if (holder.lives) return holder.name;
  return fmt::format("an unknown process ({}, who is named there, is gone)", holder.name);
}

LeaseHolder lease_holder(const std::string& run_folder, const std::string& name) {
  const UniqueFd file(
      ::open(lease_path(run_folder, name).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return holder_of(file.get());
}

bool is_lease_of(int fd, const std::string& run_folder, const std::string& name) {
  return fd >= 0 && is_at(fd, lease_path(run_folder, name));
}

bool lease_is_held(const std::string& run_folder, const std::string& name) {
  const UniqueFd file(
      ::open(lease_path(run_folder, name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) return errno != ENOENT;
  return ::flock(file.get(), LOCK_SH | LOCK_NB) != 0;  // given back with the descriptor
}

Result<UniqueFd> take_lease(const std::string& run_folder, const std::string& name,
                            const std::string& owner) {
  TRY(make_folders(run_folder));
  const std::string path = lease_path(run_folder, name);
  for (int left = kMostTries; left > 0; --left) {
    UniqueFd file = TRY(open_lease(path));
    if (!is_private(file.get())) {
      TRY(replace(run_folder, path, name));
      continue;
    }
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return lock_error(path, errno);
      return held(name, file.get());
    }
    if (!is_at(file.get(), path)) continue;  // replaced between the opening and the lock
    // The file stays when the lease ends: one that removed it could remove its successor's.
    TRY(write_holder(file.get(), path, owner));
    return file;
  }
  return Error{Errc::busy, fmt::format("{}: '{}' is replaced again and again", name, path)};
}

Result<UniqueFd> await_lease(Clock& clock, const std::string& run_folder, const std::string& name,
                             const std::string& owner, Instant deadline,
                             const std::function<void()>& alive) {
  constexpr Duration kAskEvery = std::chrono::milliseconds(100);
  const Instant exited = clock.now() + kExitPatience;
  while (true) {
    auto lease = take_lease(run_folder, name, owner);
    if (lease.ok() || lease.error().code != Errc::busy) return lease;
    const Instant until =
        lease_holder(run_folder, name).lives ? deadline : std::max(deadline, exited);
    if (clock.now() >= until) return lease;
    alive();
    clock.sleep_until(std::min(until, clock.now() + kAskEvery));
  }
}

}  // namespace derate
