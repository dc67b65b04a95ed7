#include "service/transport/datagram_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/apart_thread.h"
#include "base/background_worker.h"
#include "base/clock.h"
#include "base/file_writers.h"
#include "base/unix_address.h"

namespace derate {
namespace {

bool somebody_hears(const sockaddr_un& address) {
  const UniqueFd socket = new_datagram_socket();
  return socket.valid() &&
         ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

Result<void> open_to(const std::string& path, std::optional<uid_t> only_user) {
  if (only_user) return add_writer(path, *only_user);
  if (::chmod(path.c_str(), 0666) != 0) return socket_error("cannot open to all", path, errno);
  return {};
}

#ifdef SO_PASSPIDFD
constexpr int kPassPidfd = SO_PASSPIDFD;
#else
constexpr int kPassPidfd = 76;  // asm-generic/socket.h; Debian 12's headers are older
#endif
constexpr int kPidfdOfSender = 4;  // SCM_PIDFD
constexpr std::size_t kLongestText = 4096;
constexpr uid_t kNobody = static_cast<uid_t>(-1);

// Room for who sent it and when, and for the files that anybody may send along: what there is no
// room for is closed here and now.
struct Control {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(timespec)) +
                              CMSG_SPACE(sizeof(int)) + CMSG_SPACE(kMostPassedFiles * sizeof(int))];
};

template <class T>
std::optional<T> content(const cmsghdr& part) {
  if (part.cmsg_len < CMSG_LEN(sizeof(T))) return std::nullopt;
  T out;
  std::memcpy(&out, CMSG_DATA(&part), sizeof out);
  return out;
}

// The kernel's facts about a message, which precede its text when it is passed on.
struct Facts {
  std::uint8_t is_last = 0;  // no message: the thread has stopped reading
  std::uint8_t has_sender = 0, has_time = 0, has_file = 0, has_process = 0;
  std::uint8_t is_gone = 0;  // the sender has exited
  ucred sender{};
  timespec sent{};
};

struct Message {
  Facts facts;
  std::size_t size = 0;
  std::vector<int> files;
  int process = -1;  // a pidfd of the sender
};

// Unwanted files that a thread keeps while it reads on.
struct KeptFiles {
  std::vector<int> files;
  uid_t person = 0;  // sender of the first file
  Instant since{};   // arrival of the first file
};

// A negative pidfd is an error number. ESRCH, or EINVAL before Linux 6.16, means that the process
// has exited. Others say nothing about the process.
void take_process(int number, Message& out) {
  if (number >= 0) out.process = number;
  out.facts.is_gone = number == -ESRCH || number == -EINVAL ? 1 : 0;
}

std::optional<Message> receive_all(int socket, std::span<char> buffer) {
  iovec room{buffer.data(), buffer.size()};
  Control control;
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t size = 0;
  do size = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  if (size < 0) return std::nullopt;
  Message out;
  out.size = static_cast<std::size_t>(size);
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET) continue;
    if (at->cmsg_type == SCM_CREDENTIALS) {
      out.facts.has_sender = 1;
      out.facts.sender = content<ucred>(*at).value_or(ucred{});
    } else if (at->cmsg_type == SCM_TIMESTAMPNS) {
      out.facts.has_time = 1;
      out.facts.sent = content<timespec>(*at).value_or(timespec{});
    } else if (at->cmsg_type == kPidfdOfSender) {
      take_process(content<int>(*at).value_or(-ENOMEM), out);
    } else if (at->cmsg_type == SCM_RIGHTS) {
      const std::size_t before = out.files.size();
      const std::size_t more = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      out.files.resize(before + more);
      std::memcpy(&out.files[before], CMSG_DATA(at), more * sizeof(int));
    }
  }
  return out;
}

std::optional<Datagram> receive_direct(int socket, std::span<char> buffer) {
  const auto message = receive_all(socket, buffer);
  if (!message) return std::nullopt;
  Datagram out{.size = message->size};
  if (message->facts.has_sender != 0) out.sender = message->facts.sender;
  if (message->facts.has_time != 0) out.sent = message->facts.sent;
  return out;
}

}  // namespace

UniqueFd new_datagram_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// --- the thread apart ----------------------------------------------------------------------------

// Descriptors in calls of this object are those of the thread's own table.
struct DatagramFilter::State {
  Wanted wanted;
  PersonOf person;
  std::shared_ptr<HangingThreads> hanging;
  SystemClock clock = {};
  std::mutex mutex = {};
  std::map<uid_t, Instant> last = {};  // time of the last unwanted file, by person
  bool holds = false;                  // a thread has the socket, or will have it
  bool ends = false;                   // the thread that has it closes it after the serving thread

  bool may_hang(uid_t of);
  bool is_wanted(const Message& message) const;
  std::optional<uid_t> keep(KeptFiles& kept, Message& message);
  std::optional<uid_t> may_hang_now(const KeptFiles& kept);
  std::optional<uid_t> read(int socket, int to, KeptFiles& kept);
  void run(int socket, int to);
  void let_go(int socket, int to);
  bool pass_on(int to, Message& message, std::span<const char> text) const;
};

// Whether the thread that has an unwanted file of that person may end and close it, which may hang.
bool DatagramFilter::State::may_hang(uid_t of) {
  const Instant now = clock.now();
  const std::lock_guard lock(mutex);
  std::erase_if(last, [&](const auto& each) { return now - each.second >= kPause; });
  if (last.contains(of) || !hanging->take(of)) return false;
  last[of] = now;
  return true;
}

// Whether the kept files have waited for kPause or are too many: returns on whose account the
// thread ends. Empty: it reads on.
std::optional<uid_t> DatagramFilter::State::may_hang_now(const KeptFiles& kept) {
  if (kept.files.empty()) return std::nullopt;
  if (clock.now() - kept.since >= kPause && may_hang(kept.person)) return kept.person;
  if (kept.files.size() >= kMostKept && hanging->take(kNobody)) return kNobody;
  return std::nullopt;
}

bool DatagramFilter::State::is_wanted(const Message& message) const {
  return message.files.empty() ||
         (message.files.size() == 1 && wanted && wanted(message.files.front()));
}

// Keeps the message's files. Returns on whose account the thread ends for them; empty: it reads on.
std::optional<uid_t> DatagramFilter::State::keep(KeptFiles& kept, Message& message) {
  const uid_t of = message.facts.has_sender != 0 ? person(message.facts.sender.uid) : kNobody;
  if (kept.files.empty()) {
    kept.person = of;
    kept.since = clock.now();
  }
  kept.files.insert(kept.files.end(), message.files.begin(), message.files.end());
  if (message.process >= 0) ::close(message.process);
  return may_hang(of) ? std::optional(of) : std::nullopt;
}

// Blocks until there is room. False: the receiver has closed its end.
bool DatagramFilter::State::pass_on(int to, Message& message, std::span<const char> text) const {
  std::array<iovec, 2> data{iovec{&message.facts, sizeof message.facts},
                            iovec{const_cast<char*>(text.data()), text.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr out{};
  out.msg_iov = data.data();
  out.msg_iovlen = data.size();
  std::vector<int> passed = message.files;
  if (message.process >= 0) passed.push_back(message.process);
  message.facts.has_file = message.files.empty() ? 0 : 1;
  message.facts.has_process = message.process >= 0 ? 1 : 0;
  if (!passed.empty()) {
    out.msg_control = control;
    out.msg_controllen = CMSG_SPACE(passed.size() * sizeof(int));
    cmsghdr& part = *CMSG_FIRSTHDR(&out);
    part.cmsg_level = SOL_SOCKET;
    part.cmsg_type = SCM_RIGHTS;
    part.cmsg_len = CMSG_LEN(passed.size() * sizeof(int));
    std::memcpy(CMSG_DATA(&part), passed.data(), passed.size() * sizeof(int));
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(to, &out, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  for (const int each : passed) ::close(each);
  return sent >= 0;
}

// Reads until the thread may end for its kept files, and returns on whose account. Empty: the
// receiver has closed its end.
std::optional<uid_t> DatagramFilter::State::read(int socket, int to, KeptFiles& kept) {
  constexpr int kLookEvery = 100;  // ms
  while (true) {
    if (const auto now = may_hang_now(kept)) return now;
    const bool has_room = kept.files.size() < kMostKept;
    std::array<pollfd, 2> any{pollfd{socket, static_cast<short>(has_room ? POLLIN : 0), 0},
                              pollfd{to, 0, 0}};
    const int ready = ::poll(any.data(), any.size(), kept.files.empty() ? -1 : kLookEvery);
    if (any[1].revents != 0 || (ready < 0 && errno != EINTR)) return std::nullopt;
    if (ready <= 0 || !has_room) continue;
    std::array<char, kLongestText> text;
    auto message = receive_all(socket, text);
    if (!message) continue;
    if (!is_wanted(*message)) {
      if (const auto now = keep(kept, *message)) return now;
    } else if (!pass_on(to, *message, std::span(text).first(message->size))) {
      return std::nullopt;
    }
  }
}

// The last close of the socket closes the files in its queue, and may hang. So the serving thread's
// close must not be the last one: once it ends, this thread waits for it.
void DatagramFilter::State::let_go(int socket, int to) {
  {
    const std::lock_guard lock(mutex);
    holds = ends;
    if (!ends) {
      ::close(socket);
      return;
    }
  }
  pollfd gone{to, 0, 0};
  while ((gone.revents & (POLLHUP | POLLERR)) == 0 && ::poll(&gone, 1, -1) >= 0) {
  }
  ::close(socket);
}

// If a close hangs after the socket's, this thread holds only the kept files.
void DatagramFilter::State::run(int socket, int to) {
  KeptFiles kept;
  const auto hangs = read(socket, to, kept);
  let_go(socket, to);
  Message end;
  end.facts.is_last = 1;
  (void)pass_on(to, end, {});
  ::close(to);
  for (const int each : kept.files) close_without_lingering(UniqueFd(each));
  if (hangs) hanging->give_back(*hangs);
}

// --- the thread that serves ----------------------------------------------------------------------

DatagramFilter::DatagramFilter(UniqueFd socket, Wanted wanted, PersonOf person,
                               std::shared_ptr<HangingThreads> hanging)
    : socket_(std::move(socket)),
      state_(new State{std::move(wanted), std::move(person), std::move(hanging)}) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  out_ = UniqueFd(ends[0]);
  in_ = UniqueFd(ends[1]);
  begin();
}

// If no thread can be started now, the next receive() tries again.
void DatagramFilter::begin() {
  if (begun_.valid()) begun_.wait();  // no wait: that thread has sent its last message
  {
    const std::lock_guard lock(state_->mutex);
    state_->holds = true;
  }
  begun_ = start_apart({socket_.get(), in_.get()}, [state = state_, socket = socket_.get(),
                                                    to = in_.get()] { state->run(socket, to); });
  has_thread_ = true;
}

// A thread keeps the socket longer than this object, so that the thread closes the files in its
// queue. Only if there is none and none can be started does the serving thread close them.
DatagramFilter::~DatagramFilter() {
  bool held = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
    held = state_->holds;
  }
  if (!held && in_.valid()) begin();
  if (begun_.valid()) begun_.wait();
  socket_ = UniqueFd();
  out_ = UniqueFd();
}

std::optional<Datagram> DatagramFilter::receive(std::span<char> buffer) {
  if (is_ready(begun_) && !begun_.get()) has_thread_ = false;
  if (!has_thread_ && in_.valid()) begin();
  Facts facts;
  std::array<iovec, 2> room{iovec{&facts, sizeof facts}, iovec{buffer.data(), buffer.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
  msghdr message{};
  message.msg_iov = room.data();
  message.msg_iovlen = room.size();
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do n = ::recvmsg(out_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < static_cast<ssize_t>(sizeof facts)) return std::nullopt;
  if (facts.is_last != 0) {
    has_thread_ = false;
    return receive(buffer);
  }
  std::array<int, 2> passed{-1, -1};
  if (const cmsghdr* const part = CMSG_FIRSTHDR(&message); part != nullptr)
    std::memcpy(passed.data(), CMSG_DATA(part),
                std::min(sizeof passed, part->cmsg_len - CMSG_LEN(0)));
  Datagram out{.size = static_cast<std::size_t>(n) - sizeof facts};
  if (facts.has_sender != 0) out.sender = facts.sender;
  if (facts.has_time != 0) out.sent = facts.sent;
  if (facts.has_file != 0) out.file = UniqueFd(passed[0]);
  UniqueFd process(facts.has_process != 0 ? passed[facts.has_file != 0 ? 1 : 0] : -1);
  if (process.valid()) out.process = ProcessHandle(std::move(process));
  if (facts.is_gone != 0) out.process = ProcessHandle(UniqueFd());
  if (state_->wanted && out.sender && !out.process.is_known())
    out.process = ProcessHandle::open(out.sender->pid);
  return out;
}

Result<DatagramSocket> DatagramSocket::bind(const std::string& path, PersonOf person,
                                            DatagramFilter::Wanted wanted,
                                            std::shared_ptr<HangingThreads> hanging,
                                            std::optional<uid_t> only_user) {
  const sockaddr_un address = TRY(address_of(path));
  if (somebody_hears(address))
    return Error{Errc::busy, fmt::format("another daemon listens on '{}'", path)};
  ::unlink(path.c_str());
  UniqueFd socket = new_datagram_socket();
  if (!socket.valid()) return socket_error("cannot make", path, errno);
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return socket_error("cannot know who speaks on", path, errno);
  const bool files_come = wanted || !refuse_files(socket.get());
  // A passed file is of use only while its sender lives.
  if (wanted) (void)::setsockopt(socket.get(), SOL_SOCKET, kPassPidfd, &on, sizeof on);
  // Without the kernel's time of sending, that of reading will do.
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  // The mode holds from the first moment: who has connected once is never checked again.
  if (::fchmod(socket.get(), 0600) != 0) return socket_error("cannot make", path, errno);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return socket_error("cannot make", path, errno);
  if (auto opened = open_to(path, only_user); !opened.ok()) {
    ::unlink(path.c_str());
    return std::move(opened).error();
  }
  DatagramSocket out;
  if (files_come)
    out.filter_ = std::make_unique<DatagramFilter>(std::move(socket), std::move(wanted),
                                                   std::move(person), std::move(hanging));
  else
    out.socket_ = std::move(socket);
  return out;
}

std::optional<Datagram> DatagramSocket::receive(std::span<char> buffer) {
  return filter_ != nullptr ? filter_->receive(buffer) : receive_direct(socket_.get(), buffer);
}

}  // namespace derate
