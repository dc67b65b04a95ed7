// Files that come with a message (SCM_RIGHTS). No socket wants any but that of launches, but
// whoever may send a message may send files with it, and to close one may take as long as its
// sender likes: SO_LINGER of a TCP connection waits for its peer, a FUSE file system for its
// process. A message that nobody has read holds its files, too. So no file of another process is
// closed on the thread that serves, and no socket of ours with messages in it.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/unique_fd.h"

namespace derate {

// The most descriptors that one message carries (SCM_MAX_FD of Linux's net/scm.h).
inline constexpr std::size_t kMostPassedFiles = 253;

// Messages with files are refused where the kernel can do that (SO_PASSRIGHTS, since Linux 6.16):
// their sender gets EPERM. To be asked before bind(); accepted sockets have it, too.
void refuse_files(int socket);

// Closes one, and lets its sender delay that by a millisecond: SO_LINGER is switched off first, and
// a signal interrupts what still waits for a peer (a socket in the queue of a socket). FUSE alone
// cannot be interrupted. For a thread that start_thread() has begun and that serves nobody.
void close_without_lingering(UniqueFd file);

// Closes files on threads of its own, which are there while there is something to close. Nothing
// waits for them, the destructor neither. Files are counted by person: those of one that are stuck
// keep nobody else's from being closed.
class FileCloser {
 public:
  // Files of a person that wait or are being closed. From then on nothing more should be received
  // of that person.
  static constexpr std::size_t kMostOfOne = 64;
  static constexpr std::size_t kMostThreads = 32, kMostThreadsOfOne = 4;
  // Sockets that wait to be closed: from then on no more callers should be accepted.
  static constexpr std::size_t kMostSockets = 256;

  using Close = std::function<void(UniqueFd file)>;
  explicit FileCloser(Close how = close_without_lingering);
  FileCloser(const FileCloser&) = delete;
  FileCloser& operator=(const FileCloser&) = delete;
  ~FileCloser();

  // A file that a message of that person's has brought.
  void close(UniqueFd file, uid_t person);
  // All that a received message carries.
  void close_files_of(const msghdr& message, uid_t person);
  bool is_full(uid_t person) const;
  // Somebody is_full().
  bool has_full() const;

  // A socket of ours, and with it what nobody has read. No file is installed for it, which
  // bounds what its senders can delay: FUSE waits for nobody then.
  void close_socket(UniqueFd socket);
  // Ends a connection of a stream socket.
  void hang_up(UniqueFd connection);
  // Takes the next message from a datagram socket, and what comes with it, unseen.
  void drop_message(const UniqueFd& socket);
  // Until that is done nothing should be received from it.
  bool is_dropping() const;
  bool has_many_sockets() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

// As ::recv() without flags; files that came along are closed by `closer`.
ssize_t receive(const UniqueFd& socket, std::span<char> buffer, FileCloser& closer, uid_t person);

}  // namespace derate
