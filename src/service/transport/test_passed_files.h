// Test files whose last close takes as long as the test wants, and messages that carry them.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/fd_message.h"
#include "base/test_folder.h"
#include "base/test_wait.h"
#include "base/unique_fd.h"

namespace derate {

struct Connection {
  UniqueFd ours, theirs;
};

inline Connection pipe_of_two() {
  int ends[2];
  CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  return {UniqueFd(ends[1]), UniqueFd(ends[0])};
}

inline Connection pair_of(int type) {
  int ends[2];
  CHECK(::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// A connection whose close waits for the peer to take the sent bytes, up to ten minutes.
inline Connection lingering() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  CHECK(::bind(listener.get(), at, size) == 0 && ::listen(listener.get(), 1) == 0);
  CHECK(::getsockname(listener.get(), at, &size) == 0);
  Connection out{UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), UniqueFd()};
  CHECK(::connect(out.ours.get(), at, size) == 0);
  out.theirs = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger wait{.l_onoff = 1, .l_linger = 600};
  CHECK(::setsockopt(out.ours.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait) == 0);
  const std::string much(1 << 16, 'x');
  while (::send(out.ours.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
  }
  return out;
}

// Sends a message whose file is the last reference to the passed file, if the caller keeps none.
inline void send_file(int to, int file, int flags = 0) {
  const char byte = 'x';
  CHECK(send_fd_message(to, std::as_bytes(std::span(&byte, 1)), file, flags) == 1);
}

// A file of a FUSE file system that answers no FLUSH. So every close() of the file hangs, except on
// the thread that made it. Only root can mount such a file system.
class FuseFile {
 public:
  explicit FuseFile(const std::string& path) : path_(path) {
    kernel_ = UniqueFd(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    CHECK(UniqueFd(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)).valid());
    const std::string options =
        "fd=" + std::to_string(kernel_.get()) + ",rootmode=100600,user_id=0,group_id=0";
    is_there_ = kernel_.valid() &&
                ::mount("test", path.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
    if (is_there_) server_ = std::thread([this] { serve(); });
  }
  FuseFile(const FuseFile&) = delete;
  FuseFile& operator=(const FuseFile&) = delete;
  // Ends the closes that hang, as the end of the file system's process does.
  ~FuseFile() {
    if (!is_there_) return;
    ::umount2(path_.c_str(), MNT_DETACH);
    ends_ = true;
    server_.join();
  }

  bool is_there() const { return is_there_; }
  UniqueFd open() const { return UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)); }
  // The thread whose close() hangs; 0: none.
  pid_t hanging() const { return hanging_; }

 private:
  void serve() {
    std::vector<char> buffer(1 << 17);
    while (!ends_) {
      pollfd wanted{kernel_.get(), POLLIN, 0};
      if (::poll(&wanted, 1, 20) == 1 && ::read(kernel_.get(), buffer.data(), buffer.size()) > 0)
        answer(*reinterpret_cast<const fuse_in_header*>(buffer.data()));
    }
    kernel_ = UniqueFd();
  }
  template <class Out>
  void reply(const fuse_in_header& to, const Out& out, std::size_t size) {
    std::vector<char> text(sizeof(fuse_out_header) + size);
    const fuse_out_header head{static_cast<std::uint32_t>(text.size()), 0, to.unique};
    std::memcpy(text.data(), &head, sizeof head);
    if (size > 0) std::memcpy(text.data() + sizeof head, &out, size);
    (void)!::write(kernel_.get(), text.data(), text.size());
  }
  void answer(const fuse_in_header& in) {
    if (in.opcode == FUSE_INIT) {
      fuse_init_out out{};
      out.major = FUSE_KERNEL_VERSION;
      out.minor = 31;
      out.max_write = 4096;
      reply(in, out, sizeof out);
    } else if (in.opcode == FUSE_GETATTR) {
      fuse_attr_out out{};
      out.attr.ino = 1;
      out.attr.mode = S_IFREG | 0600;
      out.attr.nlink = 1;
      reply(in, out, sizeof out);
    } else if (in.opcode == FUSE_OPEN) {
      fuse_open_out out{};
      reply(in, out, sizeof out);
    } else if (in.opcode == FUSE_FLUSH && static_cast<pid_t>(in.pid) != maker_) {
      hanging_ = static_cast<pid_t>(in.pid);
    } else if (in.opcode == FUSE_FLUSH || in.opcode == FUSE_RELEASE) {
      reply(in, 0, 0);
    } else if (in.opcode != FUSE_FORGET && in.opcode != FUSE_INTERRUPT) {
      const fuse_out_header head{sizeof head, -ENOSYS, in.unique};
      (void)!::write(kernel_.get(), &head, sizeof head);
    }
  }

  std::string path_;
  pid_t maker_ = static_cast<pid_t>(::syscall(SYS_gettid));
  UniqueFd kernel_;
  bool is_there_ = false;
  std::atomic<bool> ends_ = false;
  std::atomic<pid_t> hanging_ = 0;
  std::thread server_;
};

// The number of descriptors that a thread of this process has open.
inline std::size_t open_files_of(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/fd";
  DIR* const folder = ::opendir(path.c_str());
  std::size_t out = 0;
  while (folder != nullptr)
    if (const dirent* const each = ::readdir(folder); each == nullptr)
      break;
    else if (each->d_name[0] != '.')
      ++out;
  if (folder != nullptr) ::closedir(folder);
  return out;
}

}  // namespace derate
