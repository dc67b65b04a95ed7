#include "base/forked_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/text.h"

namespace derate {
namespace {

// '+' and the text, or '-', the number of the error and its message.
std::string letter_of(const Result<std::string>& text) {
  if (text.ok()) return "+" + *text;
  return fmt::format("-{} {}", static_cast<int>(text.error().code), text.error().message);
}

Result<std::string> read_letter(const std::string& letter) {
  if (letter.starts_with('+')) return letter.substr(1);
  const std::size_t space = letter.find(' ');
  const auto code =
      letter.starts_with('-') ? parse_integer(letter.substr(1, space - 1)) : std::nullopt;
  if (!code || space == std::string::npos)
    return Error{Errc::bad_data, "a process ended without its text"};
  return Error{static_cast<Errc>(*code), letter.substr(space + 1)};
}

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t done = ::write(fd, text.data() + at, text.size() - at);
    if (done < 0 && errno != EINTR) return;
    if (done > 0) at += static_cast<std::size_t>(done);
  }
}

[[noreturn]] void be_the_child(int out, const std::function<Result<std::string>()>& work) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(nowhere, fd);
  write_all(out, letter_of(work()));
  ::_exit(0);
}

}  // namespace

Result<ForkedText> fork_text(const std::function<Result<std::string>()>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error{Errc::io, fmt::format("cannot make a pipe: {}", std::strerror(errno))};
  ForkedText out{.pid = -1, .text = UniqueFd(ends[0])};
  const UniqueFd theirs(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  out.pid = ::fork();
  if (out.pid < 0)
    return Error{Errc::io, fmt::format("cannot make a process: {}", std::strerror(errno))};
  if (out.pid == 0) be_the_child(theirs.get(), work);
  return out;
}

Result<std::string> text_of(ForkedText& forked, Duration patience, Clock& clock) {
  const Instant end = clock.now() + patience;
  std::string letter;
  bool ended = false;
  while (!ended && clock.now() < end) {
    pollfd wait{forked.text.get(), POLLIN, 0};
    ::poll(&wait, 1, 20);
    char buffer[4096];
    const ssize_t got = ::read(forked.text.get(), buffer, sizeof buffer);
    if (got > 0) letter.append(buffer, static_cast<std::size_t>(got));
    ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  }
  ::kill(forked.pid, SIGKILL);
  ::waitpid(forked.pid, nullptr, ended ? 0 : WNOHANG);
  if (!ended)
    return Error{Errc::gpu_stuck,
                 fmt::format("a process did not end within {:.1f} s", seconds(patience))};
  return read_letter(letter);
}

}  // namespace derate
