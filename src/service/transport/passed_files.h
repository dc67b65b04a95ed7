// Files that come with a message (SCM_RIGHTS). No socket but that of launches needs any, but every
// sender of a message may send files with it, and the last process to close a file may have to
// wait: for a peer (SO_LINGER of a TCP connection), for the process behind a FUSE file system; no
// signal ends that wait. So a file of another process never enters the table of descriptors that
// this process serves with: a message with files stays in its queue, and threads with a table of
// their own close it (SocketCloser, DatagramFilter).
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "base/unique_fd.h"

namespace derate {

// The most descriptors that one message carries (SCM_MAX_FD of Linux's net/scm.h).
inline constexpr std::size_t kMostPassedFiles = 253;

// Messages with files are refused where the kernel can do that (SO_PASSRIGHTS, since Linux 6.16):
// their sender gets EPERM. To be requested before bind(); accepted sockets have it, too. False: the
// kernel cannot.
bool refuse_files(int socket);
bool kernel_refuses_files();

// As ::recv() without flags, of a stream socket. A message with files is not taken, nor is anything
// behind it: EPERM. Out-of-band bytes count only with SO_OOBINLINE: without it the kernel drops
// them, and their files, as it passes over them.
ssize_t receive_without_files(const UniqueFd& socket, std::span<char> buffer);

// A signal to this thread, four times a millisecond, for as long as it lives: what waits in the
// kernel for a peer looks at each whether it should go on. It stands for no event, and its handler
// does nothing. For a thread of start_thread().
class Interruptions {
 public:
  Interruptions();
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  ~Interruptions();

 private:
  timer_t timer_{};
  bool has_timer_ = false;
};

// Closes one, and lets its sender delay that by a millisecond: SO_LINGER is switched off first, and
// a signal interrupts what still waits for a peer (a socket in the queue of a socket). FUSE alone
// cannot be interrupted.
void close_without_lingering(UniqueFd file);

// Threads that may hang with what a person has sent: few of one, and few in all, of all sockets
// together. From any thread.
class HangingThreads {
 public:
  static constexpr std::size_t kMost = 32, kMostOfOne = 4;

  // False: there are too many.
  bool take(uid_t person);
  void give_back(uid_t person);

 private:
  std::mutex mutex_;
  std::map<uid_t, std::size_t> of_person_;
};

}  // namespace derate
