#include "service/transport/datagram_socket.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/unix_address.h"

namespace derate {
namespace {

bool somebody_hears(const sockaddr_un& address) {
  const UniqueFd socket = new_datagram_socket();
  return socket.valid() &&
         ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

#ifdef SO_PASSPIDFD
constexpr int kPassPidfd = SO_PASSPIDFD;
#else
constexpr int kPassPidfd = 76;  // asm-generic/socket.h; Debian 12's headers are older
#endif
constexpr int kPidfdOfSender = 4;  // SCM_PIDFD

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

// Of the next message, without taking it, and without room for files: none is installed.
std::optional<uid_t> next_sender(const UniqueFd& socket) {
  char byte = 0;
  iovec room{&byte, sizeof byte};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(timespec))];
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_PEEK | MSG_CMSG_CLOEXEC) < 0)
    return std::nullopt;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at))
    if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_CREDENTIALS)
      if (const auto sender = content<ucred>(*at)) return sender->uid;
  return std::nullopt;
}

}  // namespace

UniqueFd new_datagram_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

Result<UniqueFd> bind_datagrams(const std::string& path, Files files) {
  const sockaddr_un address = TRY(address_of(path));
  if (somebody_hears(address))
    return Error{Errc::busy, fmt::format("another daemon listens on '{}'", path)};
  ::unlink(path.c_str());
  UniqueFd socket = new_datagram_socket();
  if (!socket.valid()) return socket_error("cannot make", path, errno);
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return socket_error("cannot know who speaks on", path, errno);
  if (files == Files::refused) refuse_files(socket.get());
  // What is handed over is of use only as long as its sender lives.
  if (files == Files::taken)
    (void)::setsockopt(socket.get(), SOL_SOCKET, kPassPidfd, &on, sizeof on);
  // Without the kernel's time of sending, that of reading will do.
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return socket_error("cannot make", path, errno);
  if (::chmod(path.c_str(), 0666) != 0) {
    const Error error = socket_error("cannot open to all", path, errno);
    ::unlink(path.c_str());
    return error;
  }
  return socket;
}

std::optional<Datagram> receive_datagram(const UniqueFd& socket, std::span<char> buffer,
                                         Files files, FileCloser& closer, const PersonOf& person) {
  if (closer.is_dropping()) return std::nullopt;
  if (closer.has_full()) {
    const auto next = next_sender(socket);
    if (next && closer.is_full(person(*next))) return closer.drop_message(socket), std::nullopt;
  }
  iovec room{buffer.data(), buffer.size()};
  Control control;
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t size = 0;
  do size = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  if (size < 0) return std::nullopt;
  Datagram out{.size = static_cast<std::size_t>(size)};
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET) continue;
    if (at->cmsg_type == SCM_CREDENTIALS) out.sender = content<ucred>(*at);
    if (at->cmsg_type == SCM_TIMESTAMPNS) out.sent = content<timespec>(*at);
    if (at->cmsg_type == kPidfdOfSender)  // a negative one: it had gone
      out.process = ProcessHandle(UniqueFd(content<int>(*at).value_or(-1)));
    const bool alone = at->cmsg_type == SCM_RIGHTS && at->cmsg_len == CMSG_LEN(sizeof(int));
    if (!alone || files == Files::refused || out.file.valid()) continue;
    out.file = UniqueFd(*content<int>(*at));
    at->cmsg_type = 0;  // the others are closed below
  }
  constexpr uid_t kNobody = static_cast<uid_t>(-1);
  closer.close_files_of(message, out.sender ? person(out.sender->uid) : kNobody);
  if (files == Files::taken && out.sender && !out.process.is_known())
    out.process = ProcessHandle::open(out.sender->pid);
  return out;
}

}  // namespace derate
