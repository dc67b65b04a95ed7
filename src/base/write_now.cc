#include "base/write_now.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "base/unique_fd.h"

namespace derate {
namespace {

bool wrote_all(ssize_t written, std::string_view text) {
  return written == static_cast<ssize_t>(text.size());
}

// Between the look and the write another process may take the room: only where no descriptor of
// our own can be had.
bool write_if_there_is_room(int fd, std::string_view text) {
  pollfd wanted{fd, POLLOUT, 0};
  if (::poll(&wanted, 1, 0) <= 0 || wanted.revents != POLLOUT) return false;
  return wrote_all(::write(fd, text.data(), text.size()), text);
}

// O_NONBLOCK belongs to an open file, which others share: the command's own output would get it,
// too. So the same pipe or terminal is opened once more.
bool write_by_own_descriptor(int fd, std::string_view text) {
  const UniqueFd own(::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                            O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own.valid()) return wrote_all(::write(own.get(), text.data(), text.size()), text);
  // Nobody reads the pipe any more, or the terminal is gone.
  if (errno == ENXIO || errno == EIO) return false;
  return write_if_there_is_room(fd, text);
}

}  // namespace

bool write_now(int fd, std::string_view text) {
  text = text.substr(0, PIPE_BUF);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  if (S_ISSOCK(info.st_mode))
    return wrote_all(::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL), text);
  if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) return write_by_own_descriptor(fd, text);
  return wrote_all(::write(fd, text.data(), text.size()), text);
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
