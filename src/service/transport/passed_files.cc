#include "service/transport/passed_files.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace derate {
namespace {

#ifdef SO_PASSRIGHTS
constexpr int kPassRights = SO_PASSRIGHTS;
#else
constexpr int kPassRights = 83;  // asm-generic/socket.h; Debian 12's headers are older
#endif

int interruption() { return SIGRTMIN + 6; }

}  // namespace

bool refuse_files(int socket) {
  const int off = 0;
  return ::setsockopt(socket, SOL_SOCKET, kPassRights, &off, sizeof off) == 0;
}

bool kernel_refuses_files() {
  static const bool refuses = [] {
    const UniqueFd any(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return any.valid() && refuse_files(any.get());
  }();
  return refuses;
}

// Without room for files, a peek installs none and sets MSG_CTRUNC if there were some.
ssize_t receive_without_files(const UniqueFd& socket, std::span<char> buffer) {
  iovec room{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  const ssize_t seen = ::recvmsg(socket.get(), &message, MSG_PEEK);
  if (seen <= 0) return seen;
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EPERM;
    return -1;
  }
  // Bytes that have come after the peek stay in the queue.
  return ::recv(socket.get(), buffer.data(), static_cast<std::size_t>(seen), 0);
}

Interruptions::Interruptions() {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  ::sigaction(interruption(), &nothing, nullptr);
  sigset_t ours;
  ::sigemptyset(&ours);
  ::sigaddset(&ours, interruption());
  ::pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = interruption();
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
  has_timer_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  constexpr timespec kEvery{0, 250'000};
  const itimerspec every{kEvery, kEvery};
  if (has_timer_) ::timer_settime(timer_, 0, &every, nullptr);
}

Interruptions::~Interruptions() {
  if (has_timer_) ::timer_delete(timer_);
}

void close_without_lingering(UniqueFd file) {
  const linger off{};
  (void)::setsockopt(file.get(), SOL_SOCKET, SO_LINGER, &off, sizeof off);  // if it is a socket
  const Interruptions interrupted;
  const UniqueFd closed = std::move(file);
}

bool HangingThreads::take(uid_t person) {
  const std::lock_guard lock(mutex_);
  std::size_t all = 0;
  for (const auto& [each, count] : of_person_) all += count;
  std::size_t& own = of_person_[person];
  if (own < kMostOfOne && all < kMost) return ++own, true;
  if (own == 0) of_person_.erase(person);
  return false;
}

void HangingThreads::give_back(uid_t person) {
  const std::lock_guard lock(mutex_);
  if (--of_person_[person] == 0) of_person_.erase(person);
}

}  // namespace derate
