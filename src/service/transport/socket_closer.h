// Closes the unix sockets of a process that serves. A message that nobody has read holds its files,
// and whoever closes the socket closes those, so that the last close can take as long as a caller
// likes; before Linux 6.10 it can be another socket's, as the kernel collects what has no owner in
// whichever thread closes one. A kernel that can refuse messages with files prevents all of this:
// there, sockets are closed at once.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/unique_fd.h"
#include "service/transport/passed_files.h"

namespace derate {

// One for all servers of a process, which count its sockets together; from any thread.
class SocketCloser {
 public:
  // Sockets that wait to be closed or are being closed: of a person, and of all. Beyond the first
  // that person's callers are not served, beyond the second nobody's are taken.
  static constexpr std::size_t kMostOfOne = 64, kMost = 1024;
  // at_once: here and now. apart: by threads with no descriptor but what they close.
  enum class Where { at_once, apart };
  using Close = std::function<void(UniqueFd socket)>;

  explicit SocketCloser(Where where = kernel_refuses_files() ? Where::at_once : Where::apart,
                        Close how = close_without_lingering);
  SocketCloser(const SocketCloser&) = delete;
  SocketCloser& operator=(const SocketCloser&) = delete;
  ~SocketCloser();  // waits for nothing; what is stuck stays so

  // Messages with files may be there: no thread of a server may close, nor take what has some.
  bool files_come() const { return where_ == Where::apart; }
  // As ::recv() without flags; EPERM where files come with it.
  ssize_t receive(const UniqueFd& socket, std::span<char> buffer) const;
  // Its peer notices at once. Whoever watched it (epoll) does so no more before that.
  void close(UniqueFd socket, uid_t person);
  // Passes on what has waited for others of its person, or for a thread. For each round of service.
  void go_on();

  bool is_full(uid_t person) const;
  bool is_full() const;
  // For all that may hang with what a person has sent.
  const std::shared_ptr<HangingThreads>& hanging() const;

 private:
  struct Shared;
  Where where_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace derate
