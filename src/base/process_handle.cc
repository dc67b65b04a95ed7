#include "base/process_handle.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

namespace derate {
namespace {

#ifdef SYS_pidfd_open
constexpr long kPidfdOpen = SYS_pidfd_open;
#else
constexpr long kPidfdOpen = 434;  // all architectures
#endif

}  // namespace

ProcessHandle ProcessHandle::open(std::int64_t pid) {
  if (pid <= 0) return {};
  UniqueFd fd(static_cast<int>(::syscall(kPidfdOpen, static_cast<pid_t>(pid), 0)));
  if (!fd.valid() && errno != ESRCH) return {};
  return ProcessHandle(std::move(fd));
}

bool ProcessHandle::has_ended() const {
  if (!fd_.valid()) return gone_;
  pollfd exited{fd_.get(), POLLIN, 0};
  return ::poll(&exited, 1, 0) == 1 && exited.revents != 0;
}

}  // namespace derate
