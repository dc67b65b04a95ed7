#include "service/transport/socket_closer.h"

#include <sys/socket.h>

#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "base/apart_thread.h"
#include "base/background_worker.h"
#include "base/fd_message.h"

namespace derate {
namespace {

// Sends a socket and its person to a thread with another table of descriptors.
bool send_socket(int to, int socket, uid_t person) {
  return send_fd_message(to, std::as_bytes(std::span(&person, 1)), socket, MSG_DONTWAIT) ==
         sizeof person;
}

// Receives the next socket and its person. Invalid: no more sockets will come.
UniqueFd receive_socket(int from, uid_t& person) {
  return receive_fd_message(from, std::as_writable_bytes(std::span(&person, 1)), 0).fd;
}

}  // namespace

struct SocketCloser::Shared {
  struct Pile {
    std::deque<UniqueFd> waiting;
    std::size_t closing = 0;
    std::size_t size() const { return waiting.size() + closing; }
  };

  explicit Shared(Close how) : close(std::move(how)) {}

  bool begin_thread(const std::shared_ptr<Shared>& self);
  void count_threads();
  void pass_on(const std::shared_ptr<Shared>& self);
  void close_all(int from);

  const Close close;
  const std::shared_ptr<HangingThreads> hanging = std::make_shared<HangingThreads>();
  mutable std::mutex mutex;
  std::map<uid_t, Pile> piles;  // by person
  std::size_t all = 0, closing = 0, threads = 0;
  std::future<bool> began;  // whether the last thread was started
  UniqueFd to, from;        // connection to the threads: our end and theirs
};

// Takes back the count of the last thread if it could not be started, which is known only later.
void SocketCloser::Shared::count_threads() {
  if (is_ready(began) && !began.get()) --threads;
}

// Starts a thread. Threads stay: there are as many as sockets were ever being closed at a time.
bool SocketCloser::Shared::begin_thread(const std::shared_ptr<Shared>& self) {
  count_threads();
  if (began.valid()) return false;
  ++threads;
  began = start_apart({from.get()}, [self, number = from.get()] { self->close_all(number); });
  return true;
}

// Passes waiting sockets to the threads. Once this process has let go of a socket, only the thread
// closes it. If there is no thread now, the socket waits for the next call.
void SocketCloser::Shared::pass_on(const std::shared_ptr<Shared>& self) {
  for (auto at = piles.begin(); at != piles.end(); ++at) {
    Pile& pile = at->second;
    while (!pile.waiting.empty() && hanging->take(at->first)) {
      const bool has_thread = closing < threads || begin_thread(self);
      if (!has_thread || !send_socket(to.get(), pile.waiting.front().get(), at->first)) {
        hanging->give_back(at->first);
        break;
      }
      pile.waiting.pop_front();
      ++pile.closing;
      ++closing;
    }
  }
}

// Runs on a thread whose only descriptor is `from_here`: no other descriptor of this object is
// valid there.
void SocketCloser::Shared::close_all(int from_here) {
  uid_t person = 0;
  for (UniqueFd socket = receive_socket(from_here, person); socket.valid();
       socket = receive_socket(from_here, person)) {
    { const std::lock_guard passed_on(mutex); }
    close(std::move(socket));
    const std::lock_guard lock(mutex);
    const auto pile = piles.find(person);
    hanging->give_back(person);
    --closing;
    --all;
    if (--pile->second.closing == 0 && pile->second.waiting.empty()) piles.erase(pile);
  }
}

SocketCloser::SocketCloser(Where where, Close how)
    : where_(where), shared_(std::make_shared<Shared>(std::move(how))) {
  int ends[2];
  if (where_ == Where::at_once ||
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return;
  shared_->to = UniqueFd(ends[0]);
  shared_->from = UniqueFd(ends[1]);
  const std::lock_guard lock(shared_->mutex);
  (void)shared_->begin_thread(shared_);
}

SocketCloser::~SocketCloser() {
  if (shared_->began.valid()) shared_->began.wait();
  const std::lock_guard lock(shared_->mutex);
  shared_->pass_on(shared_);
  // Sockets that still wait are behind others of their person. The threads share the piles, and the
  // end of the process closes these sockets.
  shared_->to = UniqueFd();
  shared_->from = UniqueFd();
}

ssize_t SocketCloser::receive(const UniqueFd& socket, std::span<char> buffer) const {
  if (files_come()) return receive_without_files(socket, buffer);
  return ::recv(socket.get(), buffer.data(), buffer.size(), 0);
}

void SocketCloser::close(UniqueFd socket, uid_t person) {
  if (!socket.valid() || where_ == Where::at_once) return;
  ::shutdown(socket.get(), SHUT_RDWR);
  const std::lock_guard lock(shared_->mutex);
  shared_->piles[person].waiting.push_back(std::move(socket));
  ++shared_->all;
  shared_->pass_on(shared_);
}

void SocketCloser::go_on() {
  if (where_ == Where::at_once) return;
  const std::lock_guard lock(shared_->mutex);
  if (shared_->all > shared_->closing) shared_->pass_on(shared_);
  shared_->count_threads();
  if (shared_->closing > shared_->threads) (void)shared_->begin_thread(shared_);
}

bool SocketCloser::is_full(uid_t person) const {
  const std::lock_guard lock(shared_->mutex);
  const auto pile = shared_->piles.find(person);
  return pile != shared_->piles.end() && pile->second.size() >= kMostOfOne;
}

bool SocketCloser::is_full() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->all >= kMost;
}

const std::shared_ptr<HangingThreads>& SocketCloser::hanging() const { return shared_->hanging; }

}  // namespace derate
