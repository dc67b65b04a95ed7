// Datagram unix sockets to which every application of this machine may send: the kernel names the
// sender and the time of each datagram.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <ctime>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/process_handle.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "service/transport/caller_shares.h"
#include "service/transport/passed_files.h"

namespace derate {

// One that is not connected and does not block; invalid where there are no descriptors left.
UniqueFd new_datagram_socket();

struct Datagram {
  std::size_t size = 0;          // of its text, which is in the buffer
  std::optional<ucred> sender;   // empty: the kernel did not say
  std::optional<timespec> sent;  // time of day; empty as well
  UniqueFd file;                 // where one that is wanted came along, and no other
  // Where files are wanted the sender, as the kernel says (SO_PASSPIDFD, Linux 6.5) or a look after
  // its number does: of a process that lives as the message is read.
  ProcessHandle process = {};
};

// Reads messages for a process that serves, on a thread apart, and passes on those without files
// and those whose only file is wanted. Others lose their message. A file that is not wanted is
// closed by the thread that has received it, after it has let go of the socket: whatever that waits
// for keeps nothing but the file, and another thread reads on.
class DatagramFilter {
 public:
  // On a thread apart, of a file that nobody may wait for: a look that asks no file system.
  using Wanted = std::function<bool(int file)>;
  // After a person has sent such a file the thread keeps what comes of that person next, for kPause
  // or while too many threads hang, and closes it when it ends: at the latest with kMostKept.
  static constexpr std::size_t kMostKept = 1024;
  static constexpr Duration kPause = std::chrono::seconds(1);

  DatagramFilter(UniqueFd socket, Wanted wanted, PersonOf person,
                 std::shared_ptr<HangingThreads> hanging);
  DatagramFilter(const DatagramFilter&) = delete;
  DatagramFilter& operator=(const DatagramFilter&) = delete;
  ~DatagramFilter();

  int fd() const { return out_.get(); }
  std::optional<Datagram> receive(std::span<char> buffer);

 private:
  struct State;
  void begin();

  UniqueFd socket_;
  UniqueFd out_, in_;  // what the thread passes on comes out of the first
  std::shared_ptr<State> state_;
  std::future<bool> begun_;  // of the last thread: it is apart
  bool has_thread_ = false;
};

class DatagramSocket {
 public:
  // Does not block; may be written by everybody. One that nobody listens on any more is replaced.
  // Without `wanted` no file is. `hanging`: of all sockets of the process.
  // Errors: busy when somebody does, invalid_argument for too long a name, no_permission, io.
  static Result<DatagramSocket> bind(
      const std::string& path, PersonOf person, DatagramFilter::Wanted wanted = {},
      std::shared_ptr<HangingThreads> hanging = std::make_shared<HangingThreads>());

  // Can be read from (poll) when there is something to receive.
  int fd() const { return filter_ != nullptr ? filter_->fd() : socket_.get(); }
  // The next one; what does not fit into `buffer` is lost. Empty: there is none now.
  std::optional<Datagram> receive(std::span<char> buffer);

 private:
  DatagramSocket() = default;

  UniqueFd socket_;
  std::unique_ptr<DatagramFilter> filter_;  // null: the kernel lets no file through
};

}  // namespace derate
