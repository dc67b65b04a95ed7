#include "child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/exit_code.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate::cli {
namespace {

// In the child, between fork and exec: system calls only, since other threads may hold locks.
[[noreturn]] void become(char* const* arguments, const std::optional<RunAs>& as, int report) {
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  const bool dropped = !as || (::setgroups(as->groups.size(), as->groups.data()) == 0 &&
                               ::setgid(as->gid) == 0 && ::setuid(as->uid) == 0);
  if (dropped) ::execvp(arguments[0], arguments);
  const int number = errno;
  (void)!::write(report, &number, sizeof number);
  ::_exit(exit_code::kRunFailed);
}

}  // namespace

Result<std::optional<RunAs>> user_behind_sudo() {
  const char* sudo_uid = std::getenv("SUDO_UID");
  if (::geteuid() != 0 || sudo_uid == nullptr || *sudo_uid == '\0') return std::optional<RunAs>{};
  const auto uid = parse_integer(sudo_uid);
  const passwd* user = uid ? ::getpwuid(static_cast<uid_t>(*uid)) : nullptr;
  if (user == nullptr)
    return Error{Errc::not_found,
                 fmt::format("SUDO_UID '{}' is no user of this machine", sudo_uid)};
  RunAs out{user->pw_uid, user->pw_gid, {}, user->pw_name, user->pw_dir};
  int count = 64;
  out.groups.resize(static_cast<std::size_t>(count));
  while (::getgrouplist(out.user.c_str(), out.gid, out.groups.data(), &count) < 0)
    out.groups.resize(static_cast<std::size_t>(count));
  out.groups.resize(static_cast<std::size_t>(count));
  return std::optional(std::move(out));
}

Result<Child::Started> Child::start(const std::vector<std::string>& command,
                                    const std::optional<RunAs>& as) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  if (as) {
    ::setenv("HOME", as->home.c_str(), 1);
    ::setenv("USER", as->user.c_str(), 1);
    ::setenv("LOGNAME", as->user.c_str(), 1);
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error{Errc::io, fmt::format("cannot make a pipe: {}", std::strerror(errno))};
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0)
    return Error{Errc::io, fmt::format("cannot start a process: {}", std::strerror(errno))};
  if (pid == 0) become(arguments.data(), as, write_end.get());
  { const UniqueFd closed = std::move(write_end); }
  // The pipe closes by itself when the command is executed; else it carries the reason.
  int number = 0;
  ssize_t got = 0;
  do got = ::read(read_end.get(), &number, sizeof number);
  while (got < 0 && errno == EINTR);
  Started out;
  if (got != sizeof number) {
    out.child = Child(pid);
    return out;
  }
  ::waitpid(pid, nullptr, 0);
  out.exit_code = number == ENOENT ? exit_code::kCommandNotFound : exit_code::kCannotExecute;
  out.message = fmt::format("'{}': {}", command[0], std::strerror(number));
  return out;
}

std::optional<int> Child::poll() {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_)
    return std::nullopt;
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

void Child::forward(int signal) const { ::kill(pid_, signal); }

}  // namespace derate::cli
