// Messages of a unix socket that carry a descriptor (SCM_RIGHTS).
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <span>

#include "base/unique_fd.h"

namespace derate {

// Sends the bytes, and a copy of `fd` unless that is -1. `to`: the address, over a socket that is
// not connected. `flags` are those of sendmsg(2); MSG_NOSIGNAL is always set. A call that a signal
// has interrupted is made again. Returns the number of bytes; -1: errno has the reason.
ssize_t send_fd_message(int socket, std::span<const std::byte> bytes, int fd, int flags,
                        const sockaddr_un* to = nullptr);

struct FdMessage {
  ssize_t size = 0;  // -1: errno has the reason
  UniqueFd fd;       // not valid: the message carries none
};
// The next message. `flags` are those of recvmsg(2); MSG_CMSG_CLOEXEC is always set. The kernel
// closes further descriptors of the message.
FdMessage receive_fd_message(int socket, std::span<std::byte> into, int flags);

}  // namespace derate
