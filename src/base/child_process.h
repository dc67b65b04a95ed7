// Child processes: the user's command, run next to the control loop.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace derate {

// As whom a command runs: under sudo the user who called sudo, with that user's groups and home.
struct RunAs {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string user, home;
};

// The user behind sudo; empty when this is not root under sudo.
// Errors: not_found when SUDO_UID names nobody.
Result<std::optional<RunAs>> user_behind_sudo();

struct ChildOptions {
  std::optional<RunAs> as;
  std::vector<std::string> environment;  // "NAME=VALUE", over ours
  std::string output, errors;            // files for what it prints; empty: where ours goes
  // Ours, in place of those files: what it prints is written there. Empty: no.
  std::optional<int> output_fd, errors_fd;
  bool own_group = false;     // the terminal's signals do not reach it
  bool dies_with_us = false;  // terminated when the thread that started it ends
};

// Why a program cannot be started, before anything is done for it: the exit code as of env(1), and
// a sentence. nullopt: Child::start() is to try.
struct CannotStart {
  int exit_code = 0;
  std::string message;
};
std::optional<CannotStart> cannot_start(const std::string& program);

class Child {
 public:
  // Starts `command` (found on PATH). A command that cannot be started gives its exit code as
  // env(1) does: 127 when it is not there, 126 when it may not be executed.
  struct Started;
  static Result<Started> start(const std::vector<std::string>& command,
                               const ChildOptions& options = {});

  // The exit code once it has ended: its own, or 128 + the signal that killed it. It is left to be
  // waited for by whoever outlives this process, which may be killed before it has told.
  std::optional<int> poll();
  void forward(int signal) const;
  // Sends SIGTERM, and SIGKILL when it has not ended by then; leaves nothing to wait for.
  void end(Clock& clock, Duration patience);
  // Kills it without waiting: one that hangs in the kernel stays until that is over.
  void kill_and_leave() const;
  pid_t pid() const { return pid_; }

 private:
  Child(pid_t pid, bool group) : pid_(pid), group_(group) {}
  pid_t pid_;
  bool group_;  // signals go to all of its process group
};

struct Child::Started {
  std::optional<Child> child;  // empty: it could not be executed, ...
  int exit_code = 0;           // ... and this is what to exit with
  std::string message;
};

}  // namespace derate
