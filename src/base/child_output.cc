#include "base/child_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/child_process.h"
#include "base/exit_code.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

struct Pipe {
  UniqueFd ours, theirs;
  bool ended = false;  // the other end is closed, by the command and all that it has started
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error{Errc::io, fmt::format("cannot make a pipe: {}", std::strerror(errno))};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  Pipe out;
  out.ours = UniqueFd(ends[0]);
  out.theirs = UniqueFd(ends[1]);
  return out;
}

void read_some(Pipe& pipe, std::string& out) {
  char buffer[4096];
  while (!pipe.ended) {
    const ssize_t got = ::read(pipe.ours.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) pipe.ended = true;
    if (got > 0) out.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

Result<ChildOutput> output_of(const std::vector<std::string>& command, Duration patience,
                              Clock& clock, std::size_t most) {
  Pipe text = TRY(make_pipe()), errors = TRY(make_pipe());
  ChildOptions options{.own_group = true, .dies_with_us = true};
  options.output_fd = text.theirs.get();
  options.errors_fd = errors.theirs.get();
  auto started = TRY(Child::start(command, options));
  text.theirs = UniqueFd();
  errors.theirs = UniqueFd();
  if (!started.child)
    return Error{started.exit_code == exit_code::kCommandNotFound ? Errc::not_found : Errc::io,
                 started.message};
  const Instant end = clock.now() + patience;
  ChildOutput out;
  std::optional<int> code;
  // A process that it has started may keep the pipes open after its end.
  while (!code && clock.now() < end && std::max(out.text.size(), out.errors.size()) <= most) {
    pollfd wait[] = {{text.ours.get(), POLLIN, 0}, {errors.ours.get(), POLLIN, 0}};
    for (pollfd& each : wait)
      if ((&each == wait ? text : errors).ended) each.fd = -1;
    ::poll(wait, std::size(wait), 5);
    code = started.child->poll();
    read_some(text, out.text);
    read_some(errors, out.errors);
  }
  if (code)
    started.child->end(clock, {});
  else
    started.child->kill_and_leave();
  if (!code)
    return Error{Errc::gpu_stuck, fmt::format("'{}' did not end within {:.1f} s and {} bytes",
                                              command[0], seconds(patience), most)};
  out.exit_code = *code;
  return out;
}

}  // namespace derate
