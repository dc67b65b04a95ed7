#include "service/beat_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/safe_path.h"
#include "base/unix_address.h"
#include "govern/beat_message.h"

namespace derate {
namespace {

UniqueFd new_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool somebody_listens(const sockaddr_un& address) {
  const UniqueFd socket = new_socket();
  return socket.valid() &&
         ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Room for who sent it and when, and for the files that anybody may send along: what there is no
// room for is closed here and now.
struct Control {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(timespec)) +
                              CMSG_SPACE(kMostPassedFiles * sizeof(int))];
};

}  // namespace

BeatServer::BeatServer(std::string path, UniqueFd socket, Clock& clock)
    : path_(std::move(path)), socket_(std::move(socket)), clock_(clock) {}

BeatServer::~BeatServer() { ::unlink(path_.c_str()); }

Result<std::unique_ptr<BeatServer>> BeatServer::create(const std::string& path, Clock& clock) {
  const sockaddr_un address = TRY(address_of(path));
  if (somebody_listens(address))
    return Error{Errc::busy, fmt::format("another daemon listens on '{}'", path)};
  ::unlink(path.c_str());
  UniqueFd socket = new_socket();
  if (!socket.valid()) return socket_error("cannot make", path, errno);
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return socket_error("cannot know who speaks on", path, errno);
  refuse_files(socket.get());
  // Without the kernel's time of sending, that of reading will do.
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return socket_error("cannot make", path, errno);
  std::unique_ptr<BeatServer> server(new BeatServer(path, std::move(socket), clock));
  if (::chmod(path.c_str(), 0666) != 0) return socket_error("cannot open to all", path, errno);
  return server;
}

// The kernel has the time of day only. A beat is from the last moments, whatever that says.
Instant BeatServer::sent_at(const timespec* wall) const {
  const Instant now = clock_.now();
  if (wall == nullptr) return now;
  const WallTime sent{std::chrono::seconds(wall->tv_sec) + std::chrono::nanoseconds(wall->tv_nsec)};
  const Duration ago = clock_.wall_now() - sent;
  return now - std::clamp<Duration>(ago, Duration{}, std::chrono::seconds(1));
}

// False when nothing is there.
bool BeatServer::take_one(const Handler& handler) {
  if (closer_.is_full()) return false;
  char text[kLongestBeat + 1];
  iovec room{text, sizeof text};
  Control control;
  msghdr message{};
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t size = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return errno == EINTR;
  closer_.close_files_of(message);
  const ucred* who = nullptr;
  const timespec* when = nullptr;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET) continue;
    const void* data = CMSG_DATA(at);
    if (at->cmsg_type == SCM_CREDENTIALS) who = static_cast<const ucred*>(data);
    if (at->cmsg_type == SCM_TIMESTAMPNS) when = static_cast<const timespec*>(data);
  }
  if (who == nullptr) return true;
  handler(std::string_view(text, static_cast<std::size_t>(size)),
          {who->pid, who->uid, sent_at(when)});
  return true;
}

void BeatServer::serve(const Handler& handler) {
  for (int left = kMostARound; left > 0 && take_one(handler); --left) {
  }
}

Result<void> send_beat(const std::string& path, std::string_view text) {
  const sockaddr_un address = TRY(address_of(path));
  TRY(check_socket_file(path).with("no beat is sent"));
  const UniqueFd socket = new_socket();
  if (!socket.valid()) return socket_error("cannot reach", path, errno);
  const ssize_t sent = ::sendto(socket.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (sent < 0) return socket_error("cannot reach", path, errno);
  return {};
}

}  // namespace derate
