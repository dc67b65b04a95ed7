#include "base/fd_message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace derate {

ssize_t send_fd_message(int socket, std::span<const std::byte> bytes, int fd, int flags,
                        const sockaddr_un* to) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_name = const_cast<sockaddr_un*>(to);
  message.msg_namelen = to != nullptr ? sizeof *to : 0;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const passed = CMSG_FIRSTHDR(&message);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(passed), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(socket, &message, flags | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent;
}

FdMessage receive_fd_message(int socket, std::span<std::byte> into, int flags) {
  iovec part{into.data(), into.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  FdMessage out;
  do out.size = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  while (out.size < 0 && errno == EINTR);
  const cmsghdr* const passed = out.size > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (passed == nullptr || passed->cmsg_level != SOL_SOCKET || passed->cmsg_type != SCM_RIGHTS)
    return out;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(passed), sizeof fd);
  out.fd = UniqueFd(fd);
  return out;
}

}  // namespace derate
