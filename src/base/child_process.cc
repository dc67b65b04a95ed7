#include "base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/exit_code.h"
#include "base/number.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

// What become() needs, made before the fork: between fork and exec only system calls are allowed,
// since other threads may hold locks.
struct Prepared {
  std::vector<char*> arguments, environment;
  std::optional<UniqueFd> output, errors;
  const ChildOptions& options;
  pid_t parent = 0;
};

bool dropped_to(const std::optional<RunAs>& as) {
  return !as || (::setgroups(as->groups.size(), as->groups.data()) == 0 && ::setgid(as->gid) == 0 &&
                 ::setuid(as->uid) == 0);
}

[[noreturn]] void become(const Prepared& child, int report) {
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  std::signal(SIGTTOU, SIG_DFL);
  if (child.options.own_group) ::setpgid(0, 0);
  if (child.output) ::dup2(child.output->get(), STDOUT_FILENO);
  if (child.errors) ::dup2(child.errors->get(), STDERR_FILENO);
  if (child.options.output_fd) ::dup2(*child.options.output_fd, STDOUT_FILENO);
  if (child.options.errors_fd) ::dup2(*child.options.errors_fd, STDERR_FILENO);
  const bool dropped = dropped_to(child.options.as);
  if (child.options.dies_with_us) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != child.parent) ::_exit(exit_code::kRunFailed);
  }
  if (dropped) ::execvpe(child.arguments[0], child.arguments.data(), child.environment.data());
  const int number = errno;
  (void)!::write(report, &number, sizeof number);
  ::_exit(exit_code::kRunFailed);
}

// Ours, with these in place of those of their names.
std::vector<std::string> environment_with(std::vector<std::string> over) {
  const auto replaced = [&](std::string_view entry) {
    const auto name = entry.substr(0, entry.find('=') + 1);
    return std::any_of(over.begin(), over.end(),
                       [&](const std::string& one) { return one.starts_with(name); });
  };
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!replaced(*entry)) out.emplace_back(*entry);
  std::move(over.begin(), over.end(), std::back_inserter(out));
  return out;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

Result<std::optional<UniqueFd>> file_for(const std::string& path) {
  if (path.empty()) return std::optional<UniqueFd>{};
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0)
    return Error{Errc::io, fmt::format("cannot create '{}': {}", path, std::strerror(errno))};
  return std::optional(std::move(file));
}

}  // namespace

Result<std::optional<RunAs>> user_behind_sudo() {
  const char* sudo_uid = std::getenv("SUDO_UID");
  if (::geteuid() != 0 || sudo_uid == nullptr || *sudo_uid == '\0') return std::optional<RunAs>{};
  const auto uid = parse_uid(sudo_uid);
  if (!uid)
    return Error{Errc::invalid_argument,
                 fmt::format("SUDO_UID '{}': allowed is {}", sudo_uid, kAllowedUid)};
  const passwd* user = ::getpwuid(*uid);
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

// As execvp(3) looks for it; a program that is there and may not be executed is the kernel's to
// refuse.
std::optional<CannotStart> cannot_start(const std::string& program) {
  const bool is_path = program.find('/') != program.npos;
  const char* const path = std::getenv("PATH");
  std::string folders = is_path ? "" : path != nullptr ? path : "/bin:/usr/bin";
  if (is_path && ::access(program.c_str(), F_OK) == 0) return std::nullopt;
  for (const std::string_view folder : split(folders, ':'))
    if (!is_path &&
        ::access(fmt::format("{}/{}", folder.empty() ? "." : folder, program).c_str(), F_OK) == 0)
      return std::nullopt;
  return CannotStart{exit_code::kCommandNotFound,
                     fmt::format("'{}': {}{}", program, std::strerror(ENOENT),
                                 is_path ? "" : ": no folder of $PATH has it")};
}

Result<Child::Started> Child::start(const std::vector<std::string>& command,
                                    const ChildOptions& options) {
  std::vector<std::string> over = options.environment;
  if (const auto& as = options.as) {
    over.push_back("HOME=" + as->home);
    over.push_back("USER=" + as->user);
    over.push_back("LOGNAME=" + as->user);
  }
  const std::vector<std::string> environment = environment_with(std::move(over));
  Prepared prepared{pointers(command), pointers(environment), {}, {}, options, ::getpid()};
  prepared.output = TRY(file_for(options.output));
  prepared.errors = TRY(file_for(options.errors));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error{Errc::io, fmt::format("cannot make a pipe: {}", std::strerror(errno))};
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0)
    return Error{Errc::io, fmt::format("cannot start a process: {}", std::strerror(errno))};
  if (pid == 0) become(prepared, write_end.get());
  { const UniqueFd closed = std::move(write_end); }
  // The pipe closes by itself when the command is executed; else it carries the reason.
  int number = 0;
  ssize_t got = 0;
  do got = ::read(read_end.get(), &number, sizeof number);
  while (got < 0 && errno == EINTR);
  Started out;
  if (got != sizeof number) {
    out.child = Child(pid, options.own_group);
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

void Child::forward(int signal) const { ::kill(group_ ? -pid_ : pid_, signal); }

void Child::kill_and_leave() const { forward(SIGKILL); }

void Child::end(Clock& clock, Duration patience) {
  const Instant last = clock.now() + patience;
  forward(SIGTERM);
  while (!poll() && clock.now() < last)
    clock.sleep_until(clock.now() + std::chrono::milliseconds(10));
  if (!poll()) forward(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace derate
