// Stream sockets in the file system: listening, connecting, and the peer's user, groups and process
// as the kernel names them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "service/transport/client_connection.h"

namespace derate {

// A socket that does not block, whose queue has `backlog` places. One that nobody listens on any
// more is replaced. Errors: busy when somebody does, no_permission, io.
Result<UniqueFd> listen_at(const std::string& path, ::mode_t mode, int backlog);

// Accepts the next caller; if invalid, errno has the reason. Its socket is read in the order in
// which bytes were sent, out-of-band bytes too (receive_without_files()). Neither this call nor the
// socket blocks.
UniqueFd accept_caller(const UniqueFd& listener);

// Who connected, with the groups as they were then: asking the users' database could take as long
// as it likes. Its connection has no number yet. Empty: not known, as for TCP.
std::optional<Peer> peer_of(const UniqueFd& socket);

// The process that connected, as the kernel names it (SO_PEERPIDFD, Linux 6.5). On older kernels,
// the process that has its PID now.
SharedHandle process_of(const UniqueFd& socket, const Peer& peer);

// A socket that does not block. Errors: not_found when nobody listens, busy where as many callers
// wait to be heard as there is room for, no_permission, io.
Result<UniqueFd> connect_at(const std::string& path);
// The same, but waits for such room until `end`: then gpu_stuck, which names `patience`.
Result<UniqueFd> connect_by(const std::string& path, Clock& clock, Instant end, Duration patience);

// Waits for `events` (poll) whatever signals come; false at `end`.
bool wait_for(int fd, short events, Clock& clock, Instant end);

// What is told of a daemon that has not answered.
Error no_answer(const std::string& path, Duration patience);

}  // namespace derate
