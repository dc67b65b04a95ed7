// Datagram unix sockets to which every application of this machine may send: the kernel names the
// sender and the time of each datagram.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <ctime>
#include <optional>
#include <span>
#include <string>

#include "base/process_handle.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "service/transport/caller_shares.h"
#include "service/transport/passed_files.h"

namespace derate {

enum class Files : std::uint8_t { refused, taken };

// Does not block; may be written by everybody. One that nobody listens on any more is replaced.
// Errors: busy when somebody does, invalid_argument for too long a name, no_permission, io.
Result<UniqueFd> bind_datagrams(const std::string& path, Files files);

// One that is not connected and does not block; invalid where there are no descriptors left.
UniqueFd new_datagram_socket();

struct Datagram {
  std::size_t size = 0;          // of its text, which is in the buffer
  std::optional<ucred> sender;   // empty: the kernel did not say
  std::optional<timespec> sent;  // time of day; empty as well
  UniqueFd file;                 // where one alone came along and files are taken
  // The sender, where the kernel says so (SO_PASSPIDFD, Linux 6.5) or a look after its number does:
  // of a process that lives as the message is read.
  ProcessHandle process = {};
};
// The next one; what does not fit into `buffer` is lost. Files that are not taken are closed by
// `closer`; while those of the sender's person are stuck, its messages are dropped unseen. Empty:
// there is none now.
std::optional<Datagram> receive_datagram(const UniqueFd& socket, std::span<char> buffer,
                                         Files files, FileCloser& closer, const PersonOf& person);

}  // namespace derate
