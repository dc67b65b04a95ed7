// A datagram unix socket to which libderate_progress.so (progress/) hands over the page on which it
// counts what its process launches: one file with each message.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "base/process_handle.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "integ/launch_page.h"
#include "service/transport/caller_shares.h"
#include "service/transport/datagram_socket.h"

namespace derate {

class LaunchServer {
 public:
  // What is taken in at a time; the rest waits in the kernel.
  static constexpr int kMostARound = 64;

  struct Sender {
    pid_t pid = 0;
    uid_t uid = 0;
    SharedHandle process = {};
  };
  using Handler = std::function<void(LaunchPage page, const Sender& sender)>;

  // A socket that nobody listens on any more is replaced.
  // Errors: busy when somebody does, invalid_argument for too long a name, no_permission, io.
  static Result<std::unique_ptr<LaunchServer>> create(
      const std::string& path, PersonOf person = CallerShares().person,
      std::shared_ptr<HangingThreads> hanging = std::make_shared<HangingThreads>());
  LaunchServer(const LaunchServer&) = delete;
  LaunchServer& operator=(const LaunchServer&) = delete;
  ~LaunchServer();  // removes the socket

  // Takes in the messages that are there, without waiting. A file that is no page never enters this
  // process's table of descriptors (DatagramFilter).
  void serve(const Handler& handler);
  // Can be read from (poll) when there is something to take in.
  int fd() const { return socket_.fd(); }
  const std::string& path() const { return path_; }

 private:
  LaunchServer(std::string path, DatagramSocket socket);

  std::string path_;
  DatagramSocket socket_;
};

// Gives a page to who listens at `path`, as the library does; never waits. Nothing is sent to a
// socket that is not root's or one's own. Errors: not_found when nobody listens, busy when its
// queue is full, no_permission, io.
Result<void> hand_over_page(const std::string& path, const UniqueFd& page);

}  // namespace derate
