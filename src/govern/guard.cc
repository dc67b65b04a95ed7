#include "govern/guard.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
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
#include <utility>

#include "base/exit_code.h"
#include "base/text.h"
#include "govern/lease.h"

namespace derate {
namespace {

using std::chrono::milliseconds;

constexpr Duration kBeatEvery = std::chrono::milliseconds(500);  // of the guard's own loop
constexpr Duration kDeathTime = std::chrono::seconds(2);  // from the kill to not waiting any more
constexpr Duration kMostBetweenBeats = std::chrono::seconds(1);
constexpr Duration kTidyTime = std::chrono::seconds(1);
constexpr Duration kLookAtLeasesEvery = std::chrono::seconds(1);

// No exception goes on in a process that was forked, or costs another domain its restore.
int exit_code_in_child(const std::function<int()>& work) noexcept {
  try {
    return work();
  } catch (...) {
    return exit_code::kInternalError;
  }
}

}  // namespace

struct GuardMessage {
  // renewed: of a lease whose file was removed; nobody requested it.
  enum class Kind : std::uint32_t {
    beat,
    ready,
    lease,
    release,
    started,
    granted,
    refused,
    renewed,
    ended
  };
  Kind kind = Kind::beat;
  std::int32_t number = 0;       // started: the child; refused: the error's code; ended: with it
  std::uint32_t request = 0;     // lease: its number; granted, refused: of the lease that was asked
  std::array<char, 200> name{};  // of the domain: lease, release, granted, refused
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
  Message copy = what;
  iovec part{&copy, sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const passed = CMSG_FIRSTHDR(&header);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(passed), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent == sizeof copy;
}

struct Received {
  Message message;
  UniqueFd fd;
  bool closed = false;
};

// What is there now; nothing when nothing is.
std::optional<Received> receive(int socket) {
  Received out;
  iovec part{&out.message, sizeof out.message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (const cmsghdr* passed = n > 0 ? CMSG_FIRSTHDR(&header) : nullptr;
      passed != nullptr && passed->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(passed), sizeof fd);
    out.fd = UniqueFd(fd);
  }
  out.closed = n != sizeof out.message;
  out.message.name.back() = '\0';
  out.message.text.back() = '\0';
  return out;
}

bool wait_for(int fd, int timeout_ms) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, timeout_ms) > 0;
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
  void answer_lease(const Message& request);
  Result<UniqueFd> take(const std::string& name) const;
  void look_at_leases();
  void reap_worker();
  void kill_worker(const std::string& why);
  void report(LogLevel level, std::string text, LogFields fields = {},
              LogPlace at = LogPlace::here());
  void write_reports();
  void restore_what_is_left();
  void tidy_up();
  void wait_for_adopted();

  const GuardOptions& options_;
  const GuardHooks& hooks_;
  Clock& clock_;
  sigset_t old_mask_{};
  UniqueFd signals_, link_;
  pid_t worker_ = -1;
  std::optional<int> worker_status_;  // once it is dead
  std::optional<int> ended_with_;     // its exit code, as it says before it exits
  std::optional<Instant> killed_at_, stop_asked_;
  Instant last_beat_{};
  pid_t adopted_ = -1;
  struct Leases {
    std::map<std::string, UniqueFd> held;  // by name
    std::set<std::string> lost;            // of these, that could not be taken anew; logged
    Instant looked_at{};
  } leases_;
  std::vector<LogRecord> reports_;  // of the worker's end: written once everything is restored
  GuardOutcome outcome_;
};

Result<void> Guard::start() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (const int signal : kPassedOn) sigaddset(&mask, signal);
  ::pthread_sigmask(SIG_BLOCK, &mask, &old_mask_);
  // `stty tostop` must not stop who writes a message from the background; the worker inherits it.
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
  const int code = hooks_.work(link);
  link.ended(code);
  ::_exit(code);
}

void Guard::reap_worker() {
  int status = 0;
  if (!worker_status_ && ::waitpid(worker_, &status, WNOHANG) == worker_) worker_status_ = status;
}

// Nothing may stand between the worker's end and the restore.
void Guard::report(LogLevel level, std::string text, LogFields fields, LogPlace at) {
  reports_.push_back({level, std::move(text), std::move(fields), at});
}

void Guard::write_reports() {
  for (LogRecord& each : reports_) hooks_.log.write(std::move(each));
  reports_.clear();
}

void Guard::kill_worker(const std::string& why) {
  ::kill(worker_, SIGKILL);
  killed_at_ = clock_.now();
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
    if (options_.stop_time > Duration::zero() && signal != SIGHUP && !stop_asked_)
      stop_asked_ = clock_.now();
  }
}

Result<UniqueFd> Guard::take(const std::string& name) const {
  return take_lease(options_.run_folder, name,
                    fmt::format("{}, pid {}", options_.owner, ::getpid()));
}

// A lock on a file that is not at its path any more keeps nobody out: who cleans up the run folder
// would have two governors on a GPU. The old descriptor is held until the new one is.
void Guard::look_at_leases() {
  if (clock_.now() - leases_.looked_at < kLookAtLeasesEvery) return;
  leases_.looked_at = clock_.now();
  hooks_.each_second();
  for (auto& [name, lease] : leases_.held) {
    if (is_lease_of(lease.get(), options_.run_folder, name)) continue;
    auto anew = take(name);
    if (!anew.ok()) {
      if (leases_.lost.insert(name).second)
        hooks_.log.error(fmt::format("{}: its lease was removed, and cannot be taken anew: {}",
                                     name, anew.error().message),
                         {{"gpu", name}});
      continue;
    }
    Message renewed = message(Message::Kind::renewed, name);
    if (link_.valid()) (void)send(link_.get(), renewed, anew->get());
    lease = *std::move(anew);
    leases_.lost.erase(name);
    hooks_.log.warning(name + ": its lease was removed from the run folder: taken anew",
                       {{"gpu", name}});
  }
}

void Guard::answer_lease(const Message& request) {
  const std::string name = request.name.data();
  auto lease = take(name);
  Message reply = message(lease.ok() ? Message::Kind::granted : Message::Kind::refused, name);
  reply.request = request.request;
  if (!lease.ok()) {
    reply.number = static_cast<std::int32_t>(lease.error().code);
    put(reply.text, lease.error().message);
    hooks_.log.debug("no lease: " + lease.error().message, {{"gpu", name}});
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
    const Message& request = received->message;
    if (request.kind == Message::Kind::ready) hooks_.ready(request.text.data());
    if (request.kind == Message::Kind::lease) answer_lease(request);
    if (request.kind == Message::Kind::release) leases_.held.erase(request.name.data());
    if (request.kind == Message::Kind::started) adopted_ = request.number;
    if (request.kind == Message::Kind::ended) ended_with_ = request.number;
    last_beat_ = clock_.now();  // it waited while its lease was taken
  }
}

// Waits for a signal or a message, not longer than `at_most`, and takes what came.
void Guard::look_around(Duration at_most) {
  const auto wait = std::clamp<Duration>(at_most, Duration::zero(), kBeatEvery);
  std::array<pollfd, 2> wanted{{{signals_.get(), POLLIN, 0}, {link_.get(), POLLIN, 0}}};
  const Instant before = clock_.now();
  ::poll(wanted.data(), link_.valid() ? 2 : 1,
         static_cast<int>(std::chrono::ceil<milliseconds>(wait).count()));
  // A guard that was stopped itself, in a debugger say, has not heard anybody meanwhile.
  if (clock_.now() - before > wait + options_.silence / 2) last_beat_ = clock_.now();
  take_signals();
  if (link_.valid()) take_messages();
  reap_worker();
  hooks_.alive();
  if (!worker_status_ && !killed_at_) look_at_leases();
}

void Guard::supervise() {
  while (!worker_status_) {
    look_around(kBeatEvery);
    const Instant now = clock_.now();
    if (killed_at_) {
      // A driver call that cannot be killed: its process will never go, its GPUs cannot wait.
      if (now - *killed_at_ > kDeathTime) {
        report(LogLevel::error,
               fmt::format("the worker (pid {}) does not die: going on without it", worker_),
               {{"pid", worker_}});
        return;
      }
    } else if (ended_with_ && !link_.valid() && now - last_beat_ > kDeathTime) {
      // All that it had open is closed, but for what a thread apart has (base/apart_thread.h): a
      // file of a stranger's, whose close no signal ends.
      report(LogLevel::warning,
             fmt::format("the worker (pid {}) has ended its work; a thread of it hangs in the "
                         "kernel and is not waited for",
                         worker_),
             {{"pid", worker_}});
      worker_status_ = *ended_with_ << 8;  // as wait(2) has it of an exit
    } else if (now - last_beat_ > options_.silence) {
      kill_worker(fmt::format("has said nothing for {:.1f} s", seconds(now - last_beat_)));
    } else if (stop_asked_ && now - *stop_asked_ > options_.stop_time) {
      kill_worker(fmt::format("has not stopped in {:.0f} s", seconds(options_.stop_time)));
    }
  }
}

void Guard::restore_what_is_left() {
  const auto left = hooks_.left_over(worker_);
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

// In a process of its own, which is left behind where the disk does not answer.
void Guard::tidy_up() {
  if (!hooks_.tidy) return;
  const pid_t process = ::fork();
  if (process == 0) ::_exit(exit_code_in_child([&] { return hooks_.tidy(), 0; }));
  const Instant end = clock_.now() + kTidyTime;
  while (process > 0 && ::waitpid(process, nullptr, WNOHANG) == 0 && clock_.now() < end)
    clock_.sleep_until(clock_.now() + milliseconds(2));
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

// The worker's child runs on without a governor; its exit code is still wanted.
void Guard::wait_for_adopted() {
  if (!options_.adopt) return;
  outcome_.child_lost = adopted_ <= 0;
  if (outcome_.child_lost) return;
  bool told = false;
  while (true) {
    int status = 0;
    const pid_t dead = ::waitpid(adopted_, &status, WNOHANG);
    if (dead == adopted_) outcome_.exit_code = code_of_status(status);
    if (dead != 0) return;
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

Result<GuardOutcome> Guard::run() {
  TRY(start());
  supervise();
  if (link_.valid()) take_messages();  // its last words
  const bool killed = !worker_status_ || WIFSIGNALED(*worker_status_);
  outcome_.exit_code = worker_status_ ? code_of_status(*worker_status_) : 128 + SIGKILL;
  outcome_.worker_failed = killed;
  if (killed)
    report(LogLevel::error,
           fmt::format("the worker (pid {}) was killed by signal {}", worker_,
                       outcome_.exit_code - 128),
           {{"pid", worker_}});
  if (killed && adopted_ <= 0) adopted_ = inherited_child(worker_);  // before any restorer is one
  restore_what_is_left();
  leases_.held.clear();
  write_reports();
  tidy_up();
  if (killed) wait_for_adopted();
  return std::move(outcome_);
}

}  // namespace

RestoreOutcome restore_side_by_side(const std::vector<DomainId>& domains,
                                    const std::function<int(const DomainId&)>& restore,
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
    if (process == 0) ::_exit(exit_code_in_child([&] { return restore(domain); }));
    if (process > 0)
      running.push_back({domain, process});
    else
      without_process.push_back(domain);
  }
  const Instant kill_at = clock.now() + patience, give_up_at = kill_at + kDeathTime;
  bool killed = false;
  // No process is to be had (pids.max, RLIMIT_NPROC, memory). A driver that hangs holds up the
  // domains after it here; not to restore them would be worse.
  for (const DomainId& domain : without_process) {
    alive();
    const bool done = exit_code_in_child([&] { return restore(domain); }) == 0;
    (done ? out.restored : out.not_restored).push_back(domain);
  }
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
  drop_stale();
  // A guard that has not read what was said before hears from the worker when it does.
  if (send_what_waits()) (void)send(fd(), message(Message::Kind::beat));
}

void GuardLink::ended(int code) { post(message(Message::Kind::ended, {}, code)); }

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
    if (reply->message.kind == GuardMessage::Kind::renewed)
      keep_renewed(reply->message, std::move(reply->fd));
  }
}

// In addition to the descriptor that lease() gave: this process outlives the guard with its leases.
void GuardLink::keep_renewed(const GuardMessage& renewed, UniqueFd lease) {
  const auto at = held_.find(renewed.name.data());
  if (at != held_.end()) at->second = std::move(lease);
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
  // A guard that has just not answered for one domain is not waited for again for each other one.
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
    if (answer.kind == Message::Kind::renewed) {
      keep_renewed(answer, std::move(reply->fd));
      continue;
    }
    if (answer.request != last_request_ ||
        answer.name.data() != name) {  // of one that was given up
      lay_here = lay_here || (answer.name.data() == name && reply->fd.valid());
      continue;
    }
    if (answer.kind == Message::Kind::refused) {
      if (!std::exchange(lay_here, false))
        return Error{static_cast<Errc>(answer.number), answer.text.data()};
      ask_for(name);  // what kept it from us was our own, and is gone now
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
