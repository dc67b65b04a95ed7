#include "base/write_now.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <optional>

#include "base/unique_fd.h"

namespace derate {
namespace {

// The interval between two checks whether there is room again.
constexpr Duration kReaderLook = std::chrono::milliseconds(50);

// Bytes that were accepted, 0 if there is no room now; empty: the descriptor accepts no more bytes.
using Taken = std::optional<std::size_t>;

Taken taken(ssize_t written) {
  if (written >= 0) return static_cast<std::size_t>(written);
  const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  return later ? Taken(0) : std::nullopt;
}

// Another process may take the room between poll and write, and a terminal may have less room than
// the text needs. Used only if the file cannot be opened anew.
Taken write_if_there_is_room(int fd, std::string_view text) {
  pollfd wanted{fd, POLLOUT, 0};
  if (::poll(&wanted, 1, 0) <= 0) return 0;
  if (wanted.revents != POLLOUT) return std::nullopt;
  return taken(::write(fd, text.data(), text.size()));
}

constexpr int kOwn = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

// After su, a user may not open the terminal by its path, but may open /dev/tty.
UniqueFd own_terminal(int fd) {
  UniqueFd own(::open("/dev/tty", kOwn));
  unsigned wanted = 0, found = 0;
  if (own.valid() && ::ioctl(fd, TIOCGDEV, &wanted) == 0 &&
      ::ioctl(own.get(), TIOCGDEV, &found) == 0 && wanted == found)
    return own;
  return {};
}

// O_NONBLOCK applies to an open file, which other processes share: the command's output would get
// it, too. Therefore the same pipe or terminal is opened anew.
Taken write_by_own_descriptor(int fd, std::string_view text) {
  UniqueFd own(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), kOwn));
  // The pipe has no reader any more, or the terminal is gone.
  if (!own.valid() && (errno == ENXIO || errno == EIO)) return std::nullopt;
  if (!own.valid()) own = own_terminal(fd);
  if (own.valid()) return taken(::write(own.get(), text.data(), text.size()));
  return write_if_there_is_room(fd, text);
}

// Writes PIPE_BUF bytes at most: a pipe accepts these at once or not at all.
Taken write_some(int fd, std::string_view text) {
  text = text.substr(0, PIPE_BUF);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return std::nullopt;
  if (S_ISSOCK(info.st_mode))
    return taken(::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) return write_by_own_descriptor(fd, text);
  return taken(::write(fd, text.data(), text.size()));
}

}  // namespace

bool write_now(int fd, std::string_view text) {
  text = text.substr(0, PIPE_BUF);
  return write_some(fd, text) == text.size();
}

bool write_while(int fd, std::string_view text, Clock& clock,
                 const std::function<bool()>& goes_on) {
  while (!text.empty()) {
    const Taken some = write_some(fd, text);
    if (!some) return false;
    text.remove_prefix(*some);
    if (*some > 0) continue;
    if (!goes_on()) return false;
    clock.sleep_until(clock.now() + kReaderLook);
  }
  return true;
}

void LineWriter::write(std::string_view line) {
  std::string text;
  if (left_out_ > 0)
    text = fmt::format("{}: {} lines were left out: standard error did not take them\n", program_,
                       left_out_);
  text += fmt::format("{}: {}\n", program_, line);
  if (write_now(fd_, text))
    left_out_ = 0;
  else
    ++left_out_;
}

}  // namespace derate
