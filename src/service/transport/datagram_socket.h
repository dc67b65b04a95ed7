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
  UniqueFd file;                 // a wanted file, if it was the only one
  // If files are wanted: the sender as the kernel names it (SO_PASSPIDFD, Linux 6.5), else the
  // process that has its PID when the message is read.
  ProcessHandle process = {};
};

// Reads messages for a serving process on another thread. It passes on messages without files and
// messages whose only file is wanted; others are lost. The thread that received an unwanted file
// releases the socket, then closes the file. If that close hangs, it holds only the file, and
// another thread reads on.
class DatagramFilter {
 public:
  // Whether a file is wanted. It runs on the filter's thread and makes no call into a file system,
  // which could hang.
  using Wanted = std::function<bool(int file)>;
  // If the same person sent an unwanted file in the last kPause, or too many threads hang, the
  // thread keeps the next ones. It closes them when it ends: at the latest when it has kMostKept.
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
  UniqueFd out_, in_;  // messages that the thread passes on arrive at out_
  std::shared_ptr<State> state_;
  std::future<bool> begun_;  // whether the last thread was started
  bool has_thread_ = false;
};

class DatagramSocket {
 public:
  // Does not block. Replaces a socket on which no process listens. Every user may write to it; if
  // there is an `only_user`, only that user, this process's user and root may (a POSIX access
  // control list). Without `wanted` no file is wanted. All sockets of the process share `hanging`.
  // Errors: busy if another process listens, invalid_argument for too long a name, not_supported if
  // the file system keeps no access control lists, no_permission, io.
  static Result<DatagramSocket> bind(
      const std::string& path, PersonOf person, DatagramFilter::Wanted wanted = {},
      std::shared_ptr<HangingThreads> hanging = std::make_shared<HangingThreads>(),
      std::optional<uid_t> only_user = {});

  // Can be read from (poll) when there is something to receive.
  int fd() const { return filter_ != nullptr ? filter_->fd() : socket_.get(); }
  // The next message; bytes that do not fit into `buffer` are lost. Empty: no message is there now.
  std::optional<Datagram> receive(std::span<char> buffer);

 private:
  DatagramSocket() = default;

  UniqueFd socket_;
  std::unique_ptr<DatagramFilter> filter_;  // null: the kernel refuses files
};

}  // namespace derate
