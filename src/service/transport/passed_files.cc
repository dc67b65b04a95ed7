#include "service/transport/passed_files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/background_worker.h"

namespace derate {
namespace {

#ifdef SO_PASSRIGHTS
constexpr int kPassRights = SO_PASSRIGHTS;
#else
constexpr int kPassRights = 83;  // asm-generic/socket.h; Debian 12's headers are older
#endif

// A signal to this thread, four times a millisecond: what waits in the kernel for a peer looks at
// each whether it should go on. It stands for no event, and its handler does nothing.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    ::sigaction(number(), &nothing, nullptr);
    sigset_t ours;
    ::sigemptyset(&ours);
    ::sigaddset(&ours, number());
    ::pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = number();
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    has_timer_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    constexpr timespec kEvery{0, 250'000};
    const itimerspec every{kEvery, kEvery};
    if (has_timer_) ::timer_settime(timer_, 0, &every, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  ~Interruptions() {
    if (has_timer_) ::timer_delete(timer_);
  }

 private:
  static int number() { return SIGRTMIN + 6; }

  timer_t timer_{};
  bool has_timer_ = false;
};

// A message and its files, which are never installed here.
void take_unseen(const UniqueFd& socket) {
  char byte = 0;
  (void)::recv(socket.get(), &byte, sizeof byte, MSG_DONTWAIT);
}

}  // namespace

void refuse_files(int socket) {
  const int off = 0;
  (void)::setsockopt(socket, SOL_SOCKET, kPassRights, &off, sizeof off);
}

void close_without_lingering(UniqueFd file) {
  const linger off{};
  (void)::setsockopt(file.get(), SOL_SOCKET, SO_LINGER, &off, sizeof off);  // where it is a socket
  const Interruptions interrupted;
  const UniqueFd closed = std::move(file);
}

struct FileCloser::Shared : std::enable_shared_from_this<Shared> {
  struct Pile {
    std::deque<UniqueFd> waiting;
    std::size_t closing = 0;
    std::size_t size() const { return waiting.size() + closing; }
  };
  struct Socket {
    UniqueFd socket;
    bool has_message = false;  // that is to be taken; else it is to be closed
  };

  explicit Shared(Close how) : close(std::move(how)) {}

  // Whose file is next: of those whose files keep fewest threads.
  std::map<uid_t, Pile>::iterator next() {
    auto out = piles.end();
    for (auto at = piles.begin(); at != piles.end(); ++at)
      if (!at->second.waiting.empty() && at->second.closing < kMostThreadsOfOne &&
          (out == piles.end() || at->second.closing < out->second.closing))
        out = at;
    return out;
  }
  // Without a thread now the files wait for the next one that comes.
  template <class Work>
  static bool begin(Work work) {
    try {
      start_thread(std::move(work));
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }
  void begin_threads() {
    if (threads < kMostThreads && next() != piles.end() &&
        begin([self = shared_from_this()] { self->close_files(); }))
      ++threads;
    if (!sockets.empty() && !closes_sockets)
      closes_sockets = begin([self = shared_from_this()] { self->close_sockets(); });
  }
  void close_files() {
    std::unique_lock lock(mutex);
    for (auto at = next(); at != piles.end(); at = next()) {
      Pile& pile = at->second;
      UniqueFd file = std::move(pile.waiting.front());
      pile.waiting.pop_front();
      ++pile.closing;
      lock.unlock();
      close(std::move(file));
      lock.lock();
      --pile.closing;
      if (pile.size() == 0) piles.erase(at);
    }
    --threads;
  }
  void close_sockets() {
    std::unique_lock lock(mutex);
    while (!sockets.empty()) {
      const bool has_message = sockets.front().has_message;
      {
        UniqueFd socket = std::move(sockets.front().socket);
        lock.unlock();
        const Interruptions interrupted;
        if (has_message) take_unseen(socket);
        const UniqueFd closed = std::move(socket);  // while it is interrupted
      }
      lock.lock();
      sockets.pop_front();
    }
    closes_sockets = false;
  }

  const Close close;
  mutable std::mutex mutex;
  std::map<uid_t, Pile> piles;  // by person
  std::size_t threads = 0;
  std::deque<Socket> sockets;  // the first is being closed
  bool closes_sockets = false;
};

FileCloser::FileCloser(Close how) : shared_(std::make_shared<Shared>(std::move(how))) {}
FileCloser::~FileCloser() = default;  // its threads have their share of what they do

void FileCloser::close(UniqueFd file, uid_t person) {
  const std::lock_guard lock(shared_->mutex);
  shared_->piles[person].waiting.push_back(std::move(file));
  shared_->begin_threads();
}

void FileCloser::close_files_of(const msghdr& message, uid_t person) {
  for (const cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr;
       at = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(at))) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(at) + i * sizeof file, sizeof file);
      close(UniqueFd(file), person);
    }
  }
}

bool FileCloser::is_full(uid_t person) const {
  const std::lock_guard lock(shared_->mutex);
  const auto pile = shared_->piles.find(person);
  return pile != shared_->piles.end() && pile->second.size() >= kMostOfOne;
}

bool FileCloser::has_full() const {
  const std::lock_guard lock(shared_->mutex);
  for (const auto& [person, pile] : shared_->piles)
    if (pile.size() >= kMostOfOne) return true;
  return false;
}

void FileCloser::close_socket(UniqueFd socket) {
  if (!socket.valid()) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->sockets.push_back({std::move(socket)});
  shared_->begin_threads();
}

void FileCloser::hang_up(UniqueFd connection) {
  // From here on nothing more can be sent to it.
  ::shutdown(connection.get(), SHUT_RD);
  int unread = 0;
  if (::ioctl(connection.get(), FIONREAD, &unread) != 0 || unread > 0)
    close_socket(std::move(connection));
}

void FileCloser::drop_message(const UniqueFd& socket) {
  UniqueFd same(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!same.valid()) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->sockets.push_back({std::move(same), true});
  shared_->begin_threads();
}

bool FileCloser::is_dropping() const {
  const std::lock_guard lock(shared_->mutex);
  for (const auto& each : shared_->sockets)
    if (each.has_message) return true;
  return false;
}

bool FileCloser::has_many_sockets() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->sockets.size() >= kMostSockets;
}

ssize_t receive(const UniqueFd& socket, std::span<char> buffer, FileCloser& closer, uid_t person) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostPassedFiles * sizeof(int))];
  iovec room{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (n >= 0) closer.close_files_of(message, person);
  return n;
}

}  // namespace derate
