// derate beat: an application, or a script for it, says how far it is.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <utility>

#include "base/number.h"
#include "base/text.h"
#include "beats.h"
#include "command_options.h"
#include "config/paths.h"
#include "govern/job_classes.h"
#include "service/workloads/beat_socket.h"
#include "signal/heartbeats.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// Of a socket that is passed over, while another one is heard.
void warn_once(const Error& error) {
  static bool told = false;
  if (!std::exchange(told, true)) warn("derate: {}\n", error.message);
}

}  // namespace

Result<void> send_beat_message(const BeatMessage& message) {
  const std::string text = format_beat(message);
  const auto sockets = beat_sockets();
  std::optional<Error> refused;
  for (const std::string& path : sockets) {
    auto sent = send_beat(path, text);
    if (sent.ok() && refused) warn_once(*refused);
    if (sent.ok()) return sent;
    if (sent.error().code == Errc::no_permission && !refused)
      refused = sent.error();
    else if (sent.error().code != Errc::not_found)
      return sent;
  }
  if (refused) return *refused;
  return Error{Errc::not_found,
               fmt::format("nobody hears beats: no daemon listens on '{}'", sockets.back())};
}

Result<void> send_environment(std::int64_t pid) {
  BeatMessage message;
  message.pid = pid;
  Result<void> done;
  if (const char* delta = std::getenv("DERATE_DELTA"); delta != nullptr && *delta != '\0') {
    if (auto asked = parse_asked_loss(delta); asked.ok())
      message.asked = delta;
    else
      done = std::move(asked).error();
  }
  // Of another manager's making it is no number, and nothing that a bill could have.
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job != nullptr && parse_number<std::uint32_t>(job)) message.job = job;
  if (!message.asked.empty() || !message.job.empty()) {
    TRY(parse_beat(format_beat(message)));
    TRY(send_beat_message(message));
  }
  return done;
}

void EnvironmentSender::send_if_due(const Clock& clock) {
  constexpr Duration kEvery = std::chrono::minutes(1);
  const Instant now = clock.now();
  if (next_ && now < *next_) return;
  next_ = now + kEvery;
  (void)send_environment(0).ok();  // a daemon need not be there
}

namespace {

Result<int> send_each_line(BeatMessage message) {
  SystemClock clock;
  EnvironmentSender environment;
  bool complained = false;
  for (std::string line; std::getline(std::cin, line);) {
    message.done = parse_double(trim(line));
    if (!message.done || !(*message.done >= 0 && *message.done <= kMostDone)) {
      write_raw(stdout, line + "\n");  // as it came: it is not ours
      continue;
    }
    environment.send_if_due(clock);
    // Whoever writes to this pipe goes on, heard or not.
    const auto said = send_beat_message(message);
    if (!said.ok() && said.error().code != Errc::busy && !std::exchange(complained, true))
      warn("derate: {}\n", said.error().message);
  }
  return 0;
}

}  // namespace

Result<int> run_verb(const BeatOptions& options) {
  if (options.announce) {
    TRY(send_environment(options.pid != 0 ? options.pid : ::getppid()));
    return 0;
  }
  BeatMessage message{options.done, options.phase, {}, options.gpu};
  if (options.max_loss) message.max_loss = Fraction(*options.max_loss);
  if (options.from_stdin) {
    message.done = 0;
    TRY(parse_beat(format_beat(message)));
    return send_each_line(message);
  }
  if (!message.done && message.phase.empty() && !message.max_loss)
    return Error{Errc::invalid_argument, "nothing to say: --done, --stdin, --phase or --max-loss"};
  // This process is gone in a moment: the count is the caller's.
  message.pid = ::getppid();
  TRY(parse_beat(format_beat(message)));
  (void)send_environment(message.pid).ok();  // the beat is sent all the same
  TRY(send_beat_message(message));
  return 0;
}

}  // namespace derate::cli
