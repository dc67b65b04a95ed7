// Files that come with a message (SCM_RIGHTS). No operation needs any, but every sender of a
// message may send files with it, and the last process to close a file may have to wait: for a peer
// (SO_LINGER of a TCP connection), for the process behind a FUSE file system. So no file of another
// process is closed on the thread that serves.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <span>

#include "base/unique_fd.h"

namespace derate {

// The most descriptors that one message carries (SCM_MAX_FD of Linux's net/scm.h).
inline constexpr std::size_t kMostPassedFiles = 253;

// Messages with files are refused where the kernel can do that (SO_PASSRIGHTS, since Linux 6.16):
// their sender gets EPERM. To be asked before bind(); accepted sockets have it, too.
void refuse_files(int socket);

// Closes files on a thread of its own, which is there from the first one on. Nothing waits for it,
// the destructor neither.
class FileCloser {
 public:
  // Files that wait to be closed. From then on nothing more should be received.
  static constexpr std::size_t kFull = 128;

  FileCloser();
  FileCloser(const FileCloser&) = delete;
  FileCloser& operator=(const FileCloser&) = delete;
  ~FileCloser();

  void close(UniqueFd file);
  // All that a received message carries.
  void close_files_of(const msghdr& message);
  // Ends a connection of a stream socket. What its peer sent and nobody has read goes with it.
  void hang_up(UniqueFd connection);
  bool is_full() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

// As ::recv() without flags; files that came along are closed by `closer`.
ssize_t receive(const UniqueFd& socket, std::span<char> buffer, FileCloser& closer);

}  // namespace derate
