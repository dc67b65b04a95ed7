#include "service/transport/passed_files.h"

#include <sys/ioctl.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace derate {
namespace {

#ifdef SO_PASSRIGHTS
constexpr int kPassRights = SO_PASSRIGHTS;
#else
constexpr int kPassRights = 83;  // asm-generic/socket.h; Debian 12's headers are older
#endif

}  // namespace

void refuse_files(int socket) {
  const int off = 0;
  (void)::setsockopt(socket, SOL_SOCKET, kPassRights, &off, sizeof off);
}

struct FileCloser::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<UniqueFd> waiting;
  std::size_t closing = 0;
  bool began = false, ended = false;

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ended || !waiting.empty(); });
      if (waiting.empty()) return;
      std::vector<UniqueFd> files = std::exchange(waiting, {});
      closing = files.size();
      lock.unlock();
      files.clear();
      lock.lock();
      closing = 0;
    }
  }
};

FileCloser::FileCloser() : shared_(std::make_shared<Shared>()) {}

FileCloser::~FileCloser() {
  const std::lock_guard lock(shared_->mutex);
  shared_->ended = true;
  shared_->changed.notify_all();
}

void FileCloser::close(UniqueFd file) {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back(std::move(file));
  shared_->changed.notify_all();
  if (shared_->began) return;
  try {
    std::thread([shared = shared_] { shared->run(); }).detach();
    shared_->began = true;
  } catch (const std::system_error&) {
    // No thread now: the files wait for the next one that comes.
  }
}

void FileCloser::close_files_of(const msghdr& message) {
  for (const cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr;
       at = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(at))) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(at) + i * sizeof file, sizeof file);
      close(UniqueFd(file));
    }
  }
}

void FileCloser::hang_up(UniqueFd connection) {
  // From here on nothing more can be sent to it.
  ::shutdown(connection.get(), SHUT_RD);
  int unread = 0;
  if (::ioctl(connection.get(), FIONREAD, &unread) != 0 || unread > 0) close(std::move(connection));
}

bool FileCloser::is_full() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->waiting.size() + shared_->closing >= kFull;
}

ssize_t receive(const UniqueFd& socket, std::span<char> buffer, FileCloser& closer) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostPassedFiles * sizeof(int))];
  iovec room{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (n >= 0) closer.close_files_of(message);
  return n;
}

}  // namespace derate
