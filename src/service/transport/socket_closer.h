// Closes the unix sockets of a serving process. Unread messages hold files, and the thread that
// closes the socket closes these files. So the last close can take as long as a caller likes.
// Before Linux 6.10 it may even be another socket's: the kernel collects files without an owner in
// any thread that closes a socket. If the kernel can refuse messages with files, sockets are closed
// at once.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/unique_fd.h"
#include "service/transport/passed_files.h"

namespace derate {

// All servers of a process share one, which counts their sockets together. Callable from any
// thread.
class SocketCloser {
 public:
  // Limits of sockets that wait to be closed or are being closed, of a person and of all. Beyond
  // kMostOfOne that person's callers are not served. Beyond kMost no callers are taken.
  static constexpr std::size_t kMostOfOne = 64, kMost = 1024;
  // at_once: in the calling thread. apart: in threads with no other descriptors than those they
  // close.
  enum class Where { at_once, apart };
  using Close = std::function<void(UniqueFd socket)>;

  explicit SocketCloser(Where where = kernel_refuses_files() ? Where::at_once : Where::apart,
                        Close how = close_without_lingering);
  SocketCloser(const SocketCloser&) = delete;
  SocketCloser& operator=(const SocketCloser&) = delete;
  ~SocketCloser();  // does not wait; sockets that hang stay so

  // If messages may have files, no thread of a server may close a socket or take such a message.
  bool files_come() const { return where_ == Where::apart; }
  // Like ::recv() without flags. Error EPERM: files came with the message.
  ssize_t receive(const UniqueFd& socket, std::span<char> buffer) const;
  // The peer notices at once. Remove the socket from its epoll instance before.
  void close(UniqueFd socket, uid_t person);
  // Passes on sockets that waited for others of their person, or for a thread. Call it in each
  // round of service.
  void go_on();

  bool is_full(uid_t person) const;
  bool is_full() const;
  // The count of all threads that may hang on what a person has sent.
  const std::shared_ptr<HangingThreads>& hanging() const;

 private:
  struct Shared;
  Where where_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace derate
