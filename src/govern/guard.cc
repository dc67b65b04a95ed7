#include "govern/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/exit_code.h"
#include "base/fd_message.h"
#include "base/text.h"
#include "govern/lease.h"

namespace derate {
namespace {

using std::chrono::milliseconds;

constexpr Duration kBeatEvery = std::chrono::milliseconds(500);  // of the guard's own loop
constexpr Duration kLongestWait = std::chrono::seconds(1);       // of that loop, while all is well
constexpr Duration kDeathTime = std::chrono::seconds(2);  // from the kill to not waiting any more
constexpr Duration kMostBetweenBeats = std::chrono::seconds(1);
constexpr Duration kTidyTime = std::chrono::seconds(1);
constexpr Duration kLookTime = std::chrono::seconds(1);  // for reading journals from a disk
constexpr Duration kLookAtLeasesEvery = std::chrono::seconds(1);

// Stops exceptions in a forked process, which would cost another domain its restore.
int exit_code_in_child(const std::function<int()>& work) noexcept {
  try {
    return work();
  } catch (...) {
    return exit_code::kInternalError;
  }
}

// Runs an optional step before the restore. If it fails, for example for lack of memory, it is
// skipped.
template <class Step>
void try_to(const Step& step) noexcept {
  try {
    step();
  } catch (...) {
  }
}

// Writing to a file may block on its disk, and poll() does not show that.
bool is_file(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

struct GuardMessage {
  // renewed, lost: sent without a request, about a lease whose file was removed.
  enum class Kind : std::uint32_t {
    beat,
    ready,
    lease,
    release,
    started,
    granted,
    refused,
    renewed,
    lost
  };
  Kind kind = Kind::beat;
  std::int32_t number = 0;       // started: the child; refused: the error's code
  std::uint32_t request = 0;     // lease: its number; granted, refused: of the lease that was asked
  std::array<char, 200> name{};  // of the domain: lease, release, granted, refused, renewed, lost
  std::array<char, 512> text{};  // refused: the error; ready: what the worker does
};

namespace {

using Message = GuardMessage;

template <std::size_t kSize>
void put(std::array<char, kSize>& out, std::string_view text) {
  std::copy_n(text.data(), std::min(text.size(), kSize - 1), out.data());
}

Message message(Message::Kind kind, std::string_view name = {}, std::int32_t number = 0) {
  Message out;
  out.kind = kind;
  out.number = number;
  put(out.name, name);
  return out;
}

// With a descriptor for the other side to keep, when `fd` is one. False: there is no room, or
// nobody any more.
bool send(int socket, const Message& what, int fd = -1) {
  return send_fd_message(socket, std::as_bytes(std::span(&what, 1)), fd, MSG_DONTWAIT) ==
         sizeof what;
}

struct Received {
  Message message;
  UniqueFd fd;
  bool closed = false;
};

// What is there now; nothing when nothing is.
std::optional<Received> receive(int socket) {
  Received out;
  FdMessage got =
      receive_fd_message(socket, std::as_writable_bytes(std::span(&out.message, 1)), MSG_DONTWAIT);
  if (got.size < 0 && errno == EAGAIN) return std::nullopt;
  out.fd = std::move(got.fd);
  out.closed = got.size != sizeof out.message;
  out.message.name.back() = '\0';
  out.message.text.back() = '\0';
  return out;
}

bool wait_for(int fd, int timeout_ms) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, timeout_ms) > 0;
}

bool write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return false;
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  return true;
}

// Reads until the last writer closes the pipe; empty if it is still open at `end`.
std::optional<std::string> read_to_end(int fd, const Clock& clock, Instant end) {
  std::string out;
  char buffer[4096];
  while (clock.now() < end) {
    const auto left = std::chrono::ceil<milliseconds>(end - clock.now());
    if (!wait_for(fd, static_cast<int>(left.count()))) continue;
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return out;
    if (n > 0) out.append(buffer, static_cast<std::size_t>(n));
  }
  return std::nullopt;
}

// What would end a process goes to the worker, which knows how to end.
constexpr std::array kPassedOn{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

int code_of_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class Guard {
 public:
  Guard(const GuardOptions& options, const GuardHooks& hooks, Clock& clock)
      : options_(options), hooks_(hooks), clock_(clock) {}
  // What asked for the end that has come now must not kill us for it, and cost the exit code.
  ~Guard() {
    signalfd_siginfo info{};
    while (signals_.valid() && ::read(signals_.get(), &info, sizeof info) == sizeof info) continue;
    if (!options_.ends_process) ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  Result<GuardOutcome> run();

 private:
  Result<void> start();
  [[noreturn]] void become_worker(UniqueFd socket);
  void supervise();
  void look_around(Duration at_most);
  void take_signals();
  void take_messages();
  void take(const Message& request);
  void answer_lease(const Message& request);
  Result<UniqueFd> take(const std::string& name) const;
  void look_at_leases();
  void look_at_lease(const std::string& name, UniqueFd& lease);
  void reap_worker();
  bool is_silent();
  void kill_worker();
  void report_killed(const std::string& why);
  void report(LogLevel level, std::string text, LogFields fields = {},
              LogPlace at = LogPlace::here()) noexcept;
  void write_reports();
  void supervise_to_its_end();
  void report_death(bool killed);
  std::vector<DomainId> left_over();
  void restore_what_is_left();
  void await_child(pid_t process);
  void tidy_up();
  bool adopted_runs(std::optional<int>& status) const;
  void wait_for_adopted();

  const GuardOptions& options_;
  const GuardHooks& hooks_;
  Clock& clock_;
  sigset_t old_mask_{};
  UniqueFd signals_, link_;
  pid_t worker_ = -1;
  std::optional<int> worker_status_;  // once it is dead
  struct Ending {
    std::optional<Instant> stop_asked, killed_at;
    std::optional<Instant> dead_at;  // since when the worker has been dead and not reaped
    Instant looked_at{};             // when that was looked for
    bool left_behind = false;        // not reaped: one of its calls does not return
  } ending_;
  Instant last_beat_{};
  pid_t adopted_ = -1;
  struct Leases {
    std::map<std::string, UniqueFd> held;  // by name
    std::set<std::string> lost;            // of these, leases that could not be taken anew; logged
    Instant looked_at{};
  } leases_;
  // Written while the worker lives, or after everything is restored.
  struct Reports {
    std::vector<LogRecord> waiting;
    pid_t writer = -1;   // the process that writes reports to a file
    bool ready = false;  // the worker's ready was reported
  } reports_;
  GuardOutcome outcome_;
};

Result<void> Guard::start() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (const int signal : kPassedOn) sigaddset(&mask, signal);
  ::pthread_sigmask(SIG_BLOCK, &mask, &old_mask_);
  // `stty tostop` must not stop a background process that writes a message; the worker inherits it.
  std::signal(SIGTTOU, SIG_IGN);
  signals_ = UniqueFd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  int pair[2] = {-1, -1};
  if (!signals_.valid() || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return Error{Errc::io, fmt::format("no line to a worker process: {}", std::strerror(errno))};
  link_ = UniqueFd(pair[0]);
  UniqueFd workers_end(pair[1]);
  // An orphan of the worker becomes the guard's, which then can wait for it.
  if (options_.adopt) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  worker_ = ::fork();
  if (worker_ == 0) become_worker(std::move(workers_end));
  if (worker_ < 0)
    return Error{Errc::io, fmt::format("no worker process: {}", std::strerror(errno))};
  last_beat_ = clock_.now();
  return {};
}

void Guard::become_worker(UniqueFd socket) {
  link_ = UniqueFd();
  signals_ = UniqueFd();
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  GuardLink link(std::move(socket), options_.run_folder, options_.silence);
  ::_exit(hooks_.work(link));
}

// A thread in a driver or disk call that cannot be killed keeps a dead worker from being reaped and
// its files open. The kernel then reports the worker's end in no other way.
void Guard::reap_worker() {
  int status = 0;
  if (worker_status_) return;
  if (::waitpid(worker_, &status, WNOHANG) == worker_) {
    worker_status_ = status;
    return;
  }
  const Instant now = clock_.now();
  if (now - ending_.looked_at < kBeatEvery) return;
  ending_.looked_at = now;
  const auto ended = status_of_ended(worker_);
  if (!ended) return ending_.dead_at.reset();
  if (!ending_.dead_at) ending_.dead_at = now;
  if (now - *ending_.dead_at < kBeatEvery) return;  // its threads may only just be ending
  worker_status_ = *ended;
  ending_.left_behind = true;
  report(LogLevel::error,
         fmt::format("the worker (pid {}) has ended, but one of its threads hangs in a call: going "
                     "on without it",
                     worker_),
         {{"pid", worker_}});
}

// Queues the report: writing it must not delay the restore after the worker's end.
void Guard::report(LogLevel level, std::string text, LogFields fields, LogPlace at) noexcept {
  try_to([&] { reports_.waiting.push_back({level, std::move(text), std::move(fields), at}); });
}

// Writes to a file in a process of its own, because its disk may not answer. Reports are queued
// while that process waits.
void Guard::write_reports() {
  const auto write_all = [this] {
    for (const LogRecord& each : reports_.waiting) hooks_.log.write(each);
  };
  if (reports_.writer > 0 && ::waitpid(reports_.writer, nullptr, WNOHANG) == 0) return;
  reports_.writer = -1;
  if (reports_.waiting.empty()) return;
  if (is_file(STDERR_FILENO)) reports_.writer = ::fork();
  if (reports_.writer == 0) ::_exit(exit_code_in_child([&] { return write_all(), 0; }));
  if (reports_.writer < 0) write_all();
  reports_.waiting.clear();
}

void Guard::kill_worker() {
  ::kill(worker_, SIGKILL);
  ending_.killed_at = clock_.now();
}

void Guard::report_killed(const std::string& why) {
  report(LogLevel::error, fmt::format("the worker (pid {}) {}: it was killed", worker_, why),
         {{"pid", worker_}});
}

void Guard::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      reap_worker();
      continue;
    }
    // A terminal sends to the whole group: the worker has it already.
    const bool from_terminal = info.ssi_code == SI_KERNEL;
    if (!from_terminal && !worker_status_) ::kill(worker_, signal);
    if (options_.stop_time > Duration::zero() && signal != SIGHUP && !ending_.stop_asked)
      ending_.stop_asked = clock_.now();
  }
}

Result<UniqueFd> Guard::take(const std::string& name) const {
  return take_lease(options_.run_folder, name,
                    fmt::format("{}, pid {}", options_.owner, ::getpid()));
}

// A lock on a file that is no longer at its path excludes no process: after a clean-up of the run
// folder, a GPU could have two governors. The old descriptor is held until the new one is.
void Guard::look_at_leases() {
  if (clock_.now() - leases_.looked_at < kLookAtLeasesEvery) return;
  leases_.looked_at = clock_.now();
  if (std::string warning = hooks_.each_second(); !warning.empty())
    report(LogLevel::warning, std::move(warning));
  for (auto& [name, lease] : leases_.held)
    if (!is_lease_of(lease.get(), options_.run_folder, name)) look_at_lease(name, lease);
}

// The lease's file was removed. The worker gets the new lease, or the message `lost` if another
// process holds it at the second look: `derate restore` holds it for a moment.
void Guard::look_at_lease(const std::string& name, UniqueFd& lease) {
  auto anew = take(name);
  if (anew.ok()) {
    if (link_.valid()) (void)send(link_.get(), message(Message::Kind::renewed, name), anew->get());
    lease = *std::move(anew);
    leases_.lost.erase(name);
    return report(LogLevel::warning,
                  name + ": its lease was removed from the run folder: taken anew",
                  {{"gpu", name}});
  }
  const bool first = leases_.lost.insert(name).second;
  if (first)
    report(LogLevel::error,
           fmt::format("{}: its lease was removed, and cannot be taken anew: {}", name,
                       anew.error().message),
           {{"gpu", name}});
  else if (anew.error().code == Errc::busy && link_.valid())
    (void)send(link_.get(), message(Message::Kind::lost, name));
}

void Guard::answer_lease(const Message& request) {
  const std::string name = request.name.data();
  auto lease = take(name);
  Message reply = message(lease.ok() ? Message::Kind::granted : Message::Kind::refused, name);
  reply.request = request.request;
  if (!lease.ok()) {
    reply.number = static_cast<std::int32_t>(lease.error().code);
    put(reply.text, lease.error().message);
    report(LogLevel::debug, "no lease: " + lease.error().message, {{"gpu", name}});
  }
  // A lease that the worker does not hear of is none.
  if (send(link_.get(), reply, lease.ok() ? lease->get() : -1) && lease.ok())
    leases_.held[name] = *std::move(lease);
}

void Guard::take_messages() {
  while (auto received = receive(link_.get())) {
    if (received->closed) {
      link_ = UniqueFd();
      return;
    }
    take(received->message);
    last_beat_ = clock_.now();  // it waited while its lease was taken
  }
}

// From a worker that is gone, only the messages for the restore and the exit code count.
void Guard::take(const Message& said) {
  if (said.kind == Message::Kind::started) adopted_ = said.number;
  if (worker_status_ || ending_.killed_at) return;
  if (said.kind == Message::Kind::lease) answer_lease(said);
  if (said.kind == Message::Kind::release) {
    leases_.held.erase(said.name.data());
    leases_.lost.erase(said.name.data());
  }
  if (said.kind != Message::Kind::ready) return;
  hooks_.ready(said.text.data());
  if (!std::exchange(reports_.ready, true)) report(LogLevel::info, "ready");
}

// Waits for a signal or a message, not longer than `at_most`, and takes what came.
void Guard::look_around(Duration at_most) {
  const auto wait = std::clamp<Duration>(at_most, Duration::zero(), kLongestWait);
  std::array<pollfd, 2> wanted{{{signals_.get(), POLLIN, 0}, {link_.get(), POLLIN, 0}}};
  const Instant before = clock_.now();
  ::poll(wanted.data(), link_.valid() ? 2 : 1,
         static_cast<int>(std::chrono::ceil<milliseconds>(wait).count()));
  // A guard that was stopped itself, in a debugger say, has not heard anybody meanwhile.
  if (clock_.now() - before > wait + options_.silence / 2) last_beat_ = clock_.now();
  try_to([&] { take_signals(); });
  if (link_.valid()) try_to([&] { take_messages(); });
  try_to([&] { reap_worker(); });
  try_to([&] { hooks_.alive(); });
  if (worker_status_ || ending_.killed_at) return;
  try_to([&] { look_at_leases(); });
  try_to([&] { write_reports(); });
}

// If the guard itself was held up, messages of the worker may still be unread.
bool Guard::is_silent() {
  if (clock_.now() - last_beat_ <= options_.silence) return false;
  if (link_.valid()) take_messages();
  return clock_.now() - last_beat_ > options_.silence;
}

void Guard::supervise() {
  while (!worker_status_) {
    const bool quiet = !ending_.stop_asked && !ending_.killed_at && !ending_.dead_at;
    look_around(quiet ? std::min(kLongestWait, options_.silence / 4) : kBeatEvery);
    const Instant now = clock_.now();
    if (ending_.killed_at) {
      if (now - *ending_.killed_at <= kDeathTime) continue;
      // A driver call that cannot be killed: its process will never go, its GPUs cannot wait.
      ending_.left_behind = true;
      return report(LogLevel::error,
                    fmt::format("the worker (pid {}) does not die: going on without it", worker_),
                    {{"pid", worker_}});
    }
    if (is_silent()) {
      kill_worker();
      report_killed(
          fmt::format("has said nothing for {:.1f} s", seconds(clock_.now() - last_beat_)));
    } else if (ending_.stop_asked && now - *ending_.stop_asked > options_.stop_time) {
      kill_worker();
      report_killed(fmt::format("has not stopped in {:.0f} s", seconds(options_.stop_time)));
    }
  }
}

// Supervises the worker until it is gone, even if a step fails.
void Guard::supervise_to_its_end() {
  bool over = false;
  while (!over && !ending_.left_behind)
    try_to([&] {
      supervise();
      over = true;
    });
}

// The journals are read by a process of its own, for kLookTime, because their disk may not answer.
// If it has not answered by then, every domain with a lease of the worker may be left.
std::vector<DomainId> Guard::left_over() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return hooks_.left_over(worker_);
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t process = ::fork();
  if (process < 0) return hooks_.left_over(worker_);  // no process can be started
  if (process == 0)
    ::_exit(exit_code_in_child([&] {
      std::string text;
      for (const DomainId& domain : hooks_.left_over(worker_)) text += short_name(domain) + "\n";
      return write_whole(out.get(), text) ? exit_code::kOk : exit_code::kFailure;
    }));
  out = UniqueFd();
  const auto text = read_to_end(in.get(), clock_, clock_.now() + kLookTime);
  if (!text) ::kill(process, SIGKILL);
  int status = -1;
  const bool ended = text && ::waitpid(process, &status, 0) == process;
  std::vector<DomainId> left;
  if (ended && status == 0) {
    for (const std::string_view name : split(*text, '\n'))
      if (!name.empty()) left.push_back(parse_domain(name));
    return left;
  }
  for (const auto& [name, lease] : leases_.held) left.push_back(parse_domain(name));
  report(LogLevel::error, "cannot read the worker's journals: every GPU that it held is restored");
  return left;
}

void Guard::restore_what_is_left() {
  const auto left = left_over();
  if (left.empty()) return;
  outcome_.worker_failed = true;
  // What would end a process stays blocked in those that restore: a Ctrl-C goes to all of them, and
  // none may end half done. SIGKILL ends one that hangs.
  RestoreOutcome done =
      restore_side_by_side(left, hooks_.restore, options_.restore_time, clock_, hooks_.alive);
  const auto list = [](const std::vector<DomainId>& domains) {
    std::vector<std::string> names;
    for (const DomainId& domain : domains) names.push_back(short_name(domain));
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  };
  const std::string text = fmt::format("restored after the worker's end: {}; not restored: {}",
                                       list(done.restored), list(done.not_restored));
  report(done.not_restored.empty() ? LogLevel::warning : LogLevel::error, text);
  outcome_.restored = std::move(done.restored);
  outcome_.not_restored = std::move(done.not_restored);
}

// A child that may wait for a disk is abandoned after kTidyTime.
void Guard::await_child(pid_t process) {
  const Instant end = clock_.now() + kTidyTime;
  while (process > 0 && ::waitpid(process, nullptr, WNOHANG) == 0 && clock_.now() < end)
    clock_.sleep_until(clock_.now() + milliseconds(2));
}

// Writes the pending reports and removes the worker's unfinished files.
void Guard::tidy_up() {
  await_child(reports_.writer);
  try_to([&] { write_reports(); });
  await_child(reports_.writer);
  if (!hooks_.tidy) return;
  const pid_t process = ::fork();
  if (process == 0) ::_exit(exit_code_in_child([&] { return hooks_.tidy(), 0; }));
  await_child(process);
}

// A child that this process has got from its dead worker; 0 without one. The worker may have been
// killed between starting it and telling.
pid_t inherited_child(pid_t worker) {
  const auto children = read_file("/proc/thread-self/children");
  if (!children.ok()) return 0;
  for (const std::string_view child : split(*children, ' '))
    if (const auto pid = parse_integer(child); pid && *pid != worker)
      return static_cast<pid_t>(*pid);
  return 0;
}

// False once the command has ended, with its status if that is available. While a call of the dead
// worker does not return, the command is still the worker's child.
bool Guard::adopted_runs(std::optional<int>& status) const {
  int now = 0;
  const pid_t dead = ::waitpid(adopted_, &now, WNOHANG);
  if (dead == adopted_) status = now;
  if (dead >= 0 || !ending_.left_behind) return dead == 0;
  status = status_of_ended(adopted_);
  return !status && process_start(adopted_) != 0;
}

// The worker's child runs on without a governor; its exit code is still wanted.
void Guard::wait_for_adopted() {
  if (!options_.adopt) return;
  outcome_.child_lost = adopted_ <= 0;
  if (outcome_.child_lost) return;
  bool told = false;
  while (true) {
    std::optional<int> status;
    const bool runs = adopted_runs(status);
    if (status) outcome_.exit_code = code_of_status(*status);
    if (!runs) return;
    if (!std::exchange(told, true))
      hooks_.log.warning(fmt::format("governing has ended; the command (pid {}) goes on", adopted_),
                         {{"pid", adopted_}});
    signalfd_siginfo info{};
    if (wait_for(signals_.get(), 500) && ::read(signals_.get(), &info, sizeof info) > 0 &&
        info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL)
      ::kill(adopted_, static_cast<int>(info.ssi_signo));
    hooks_.alive();
  }
}

int code_of(const RestoreStep& step) {
  if (step.code != exit_code::kOk || !step.afterwards) return step.code;
  return step.afterwards();
}

// Restores without processes, if none can be started (pids.max, RLIMIT_NPROC, memory). A driver
// that hangs then delays the domains after it, which is better than no restore. Steps that may wait
// for a disk come after the last domain.
void restore_here(const std::vector<DomainId>& domains, const Restore& restore,
                  const std::function<void()>& alive, RestoreOutcome& out) {
  std::vector<std::pair<DomainId, RestoreStep>> done;
  for (const DomainId& domain : domains) {
    RestoreStep step = exit_code::kInternalError;
    try_to([&] { alive(); });
    try_to([&] { step = restore(domain); });
    try_to([&] { done.emplace_back(domain, std::move(step)); });
  }
  for (const auto& one : done) {
    alive();
    const bool whole = exit_code_in_child([&] { return code_of(one.second); }) == exit_code::kOk;
    (whole ? out.restored : out.not_restored).push_back(one.first);
  }
}

void Guard::report_death(bool killed) {
  if (killed)
    report(LogLevel::error,
           fmt::format("the worker (pid {}) was killed by signal {}", worker_,
                       outcome_.exit_code - 128),
           {{"pid", worker_}});
}

// From the worker's end to the restore, nothing is written and no disk is waited for. Steps that
// fail are skipped.
Result<GuardOutcome> Guard::run() {
  TRY(start());
  supervise_to_its_end();
  if (link_.valid()) try_to([&] { take_messages(); });  // its last messages
  const bool killed = !worker_status_ || WIFSIGNALED(*worker_status_);
  outcome_.exit_code = worker_status_ ? code_of_status(*worker_status_) : 128 + SIGKILL;
  outcome_.worker_failed = killed;
  try_to([&] { report_death(killed); });
  // Must run before a restorer becomes another child of the guard.
  if (killed && adopted_ <= 0) try_to([&] { adopted_ = inherited_child(worker_); });
  restore_what_is_left();
  leases_.held.clear();
  tidy_up();
  if (killed) wait_for_adopted();
  return std::move(outcome_);
}

}  // namespace

RestoreOutcome restore_side_by_side(const std::vector<DomainId>& domains, const Restore& restore,
                                    Duration patience, Clock& clock,
                                    const std::function<void()>& alive) {
  struct Running {
    DomainId domain;
    pid_t process;
  };
  RestoreOutcome out;
  std::vector<Running> running;
  std::vector<DomainId> without_process;
  for (const DomainId& domain : domains) {
    const pid_t process = ::fork();
    if (process == 0) ::_exit(exit_code_in_child([&] { return code_of(restore(domain)); }));
    if (process > 0)
      running.push_back({domain, process});
    else
      without_process.push_back(domain);
  }
  const Instant kill_at = clock.now() + patience, give_up_at = kill_at + kDeathTime;
  bool killed = false;
  restore_here(without_process, restore, alive, out);
  while (true) {
    const Instant now = clock.now();
    std::erase_if(running, [&](const Running& one) {
      int status = 0;
      const bool ended = ::waitpid(one.process, &status, WNOHANG) != 0;
      if (!ended && now < give_up_at) return false;
      // One that was killed has done nothing that can be relied on; one that cannot be killed, too.
      const bool done = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
      (done ? out.restored : out.not_restored).push_back(one.domain);
      return true;
    });
    if (running.empty()) break;
    if (now >= kill_at && !std::exchange(killed, true))
      for (const Running& one : running) ::kill(one.process, SIGKILL);
    alive();
    clock.sleep_until(now + milliseconds(5));
  }
  // They end in any order; told in one.
  std::sort(out.restored.begin(), out.restored.end());
  std::sort(out.not_restored.begin(), out.not_restored.end());
  return out;
}

// Four beats fit into the shortest silence: one that comes late costs nothing.
GuardLink::GuardLink(UniqueFd socket, std::string run_folder, Duration silence)
    : socket_(std::move(socket)),
      run_folder_(std::move(run_folder)),
      beat_every_(std::min(kMostBetweenBeats, silence / 4)) {}
GuardLink::~GuardLink() = default;

// False while something waits for room.
bool GuardLink::send_what_waits() {
  while (!waiting_.empty() && send(fd(), waiting_.front())) waiting_.erase(waiting_.begin());
  return waiting_.empty();
}

void GuardLink::post(const GuardMessage& what) {
  waiting_.push_back(what);
  send_what_waits();
}

void GuardLink::beat() {
  beaten_ = SystemClock().now();
  drop_stale();
  // A guard that has not read what was said before hears from the worker when it does.
  if (send_what_waits()) (void)send(fd(), message(Message::Kind::beat));
}

void GuardLink::ready(std::string_view status) {
  Message out = message(Message::Kind::ready);
  put(out.text, status);
  post(out);
}
void GuardLink::release(const DomainId& domain) {
  held_.erase(short_name(domain));
  post(message(Message::Kind::release, short_name(domain)));
}
void GuardLink::started(pid_t child) { post(message(Message::Kind::started, {}, child)); }

// Answers to leases that were given up: their descriptors, while they wait here, keep the leases.
void GuardLink::drop_stale() {
  while (auto reply = receive(fd())) {
    if (reply->closed) return;
    hear_of_lease(reply->message, reply->fd);
  }
}

std::vector<DomainId> GuardLink::take_lost() {
  drop_stale();
  return std::exchange(lost_, {});
}

// Returns whether the message was about a lease. A renewed lease is kept in addition to the
// descriptor from lease(): this process may outlive the guard.
bool GuardLink::hear_of_lease(const GuardMessage& news, UniqueFd& lease) {
  const bool renewed = news.kind == Message::Kind::renewed;
  if (!renewed && news.kind != Message::Kind::lost) return false;
  const auto at = held_.find(news.name.data());
  if (at == held_.end()) return true;
  if (renewed)
    at->second = std::move(lease);
  else if (const DomainId domain = parse_domain(at->first); !std::ranges::count(lost_, domain))
    lost_.push_back(domain);
  return true;
}

// Until the guard says something or takes what waits for it, whatever signals come; false at `end`.
bool GuardLink::wait(Instant end) const {
  const SystemClock clock;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(end - clock.now());
    if (left <= milliseconds::zero()) return false;
    const auto events = static_cast<short>(waiting_.empty() ? POLLIN : POLLIN | POLLOUT);
    pollfd wanted{fd(), events, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

void GuardLink::ask_for(const std::string& name) {
  Message request = message(Message::Kind::lease, name);
  request.request = ++last_request_;
  post(request);
}

Result<UniqueFd> GuardLink::lease(const DomainId& domain) {
  const std::string name = short_name(domain);
  if (name.size() >= GuardMessage{}.name.size())
    return Error{Errc::invalid_argument, fmt::format("'{}': allowed are {} characters", name,
                                                     GuardMessage{}.name.size() - 1)};
  // After a guard has not answered for one domain, the wait for each other domain is shorter.
  const Instant now = SystemClock().now();
  const bool silent = gave_up_ && now - *gave_up_ < kReplyTime;
  const Instant end = now + (silent ? kReplyTimeOfSilent : kReplyTime);
  ask_for(name);
  bool lay_here = false;
  while (wait(end)) {
    send_what_waits();
    auto reply = receive(fd());
    if (!reply) continue;
    if (reply->closed) return Error{Errc::io, name + ": no lease: the guard is gone"};
    const Message& answer = reply->message;
    gave_up_.reset();
    if (hear_of_lease(answer, reply->fd)) continue;
    if (answer.request != last_request_ ||
        answer.name.data() != name) {  // of one that was given up
      lay_here = lay_here || (answer.name.data() == name && reply->fd.valid());
      continue;
    }
    if (answer.kind == Message::Kind::refused) {
      if (!std::exchange(lay_here, false))
        return Error{static_cast<Errc>(answer.number), answer.text.data()};
      ask_for(name);  // the answer came too late, and its lease is closed now
      continue;
    }
    if (is_lease_of(reply->fd.get(), run_folder_, name)) {
      held_[name] = UniqueFd();
      return std::move(reply->fd);
    }
    release(domain);
    return Error{Errc::io, name + ": no lease: the guard has passed another file"};
  }
  gave_up_ = SystemClock().now();
  // Should the guard still come to it, it lets go again.
  release(domain);
  return Error{Errc::io, name + ": no lease: the guard does not answer"};
}

bool GuardLink::guard_gone() const {
  pollfd wanted{fd(), POLLIN, 0};
  return ::poll(&wanted, 1, 0) > 0 && (wanted.revents & (POLLHUP | POLLERR)) != 0;
}

Result<GuardOutcome> run_guarded(const GuardOptions& options, const GuardHooks& hooks,
                                 Clock& clock) {
  return Guard(options, hooks, clock).run();
}

}  // namespace derate
