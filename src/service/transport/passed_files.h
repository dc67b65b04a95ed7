// Files that come with a message (SCM_RIGHTS). Only the socket of launches needs any, but every
// sender may send files with a message. The last process to close a file may have to wait: for a
// peer (SO_LINGER of a TCP connection), or for the process behind a FUSE file system, which no
// signal interrupts. So a file of another process never enters the table of descriptors that this
// process serves with. A message with files stays in its queue, and threads with a table of their
// own close it (SocketCloser, DatagramFilter).
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

// Makes the kernel refuse messages with files, if it can (SO_PASSRIGHTS, since Linux 6.16): their
// sender gets EPERM. Call it before bind(); accepted sockets inherit it. False: the kernel cannot.
bool refuse_files(int socket);
bool kernel_refuses_files();

// Like ::recv() without flags, for a stream socket. A message with files and the bytes behind it
// stay in the queue: EPERM. Out-of-band bytes need SO_OOBINLINE. Without it, the kernel passes over
// them and drops them with their files.
ssize_t receive_without_files(const UniqueFd& socket, std::span<char> buffer);

// Sends this thread a signal four times a millisecond, for as long as the object lives. A kernel
// wait for a peer checks at each signal whether it should go on. The signal means no event, and its
// handler does nothing. For a thread of start_thread().
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

// Closes a file, which its sender can delay by a millisecond. It switches SO_LINGER off first, and
// a signal interrupts a wait for a peer (a socket in the queue of a socket). Only FUSE cannot be
// interrupted.
void close_without_lingering(UniqueFd file);

// Counts the threads that may hang on what a person has sent. The limits per person and in all hold
// for all sockets together. Callable from any thread.
class HangingThreads {
 public:
  static constexpr std::size_t kMost = 32, kMostOfOne = 4;

  // False: too many threads may hang.
  bool take(uid_t person);
  void give_back(uid_t person);

 private:
  std::mutex mutex_;
  std::map<uid_t, std::size_t> of_person_;
};

}  // namespace derate
