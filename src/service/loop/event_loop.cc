#include "service/loop/event_loop.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <systemd/sd-event.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace derate {
namespace {

using std::chrono::microseconds;

// Zero would mean that a timer may come a quarter of a second late, so that it shares a wake-up.
constexpr std::uint64_t kAccuracyUs = 1;

Error failed(const char* what, int number) {
  const int code = -number;
  const bool ours = code == EPERM || code == EEXIST || code == EBADF || code == EBUSY;
  return {ours ? Errc::invalid_argument : Errc::io,
          fmt::format("the event loop cannot {}: {}", what, std::strerror(code))};
}

// Rounded up: who is called at its time finds that it has come.
std::uint64_t microseconds_of(Duration time) {
  return static_cast<std::uint64_t>(
      std::max<microseconds::rep>(0, std::chrono::ceil<microseconds>(time).count()));
}

}  // namespace

// sd-event could do this as well, but would let them through again in the end.
void block_signals(std::span<const int> numbers) {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : numbers) sigaddset(&mask, number);
  CHECK(::pthread_sigmask(SIG_BLOCK, &mask, nullptr) == 0);
}

void EventLoop::Timer::set(Instant due) {
  if (source_ == nullptr) return;
  (void)sd_event_source_set_time(source_, microseconds_of(due.time_since_epoch()));
  (void)sd_event_source_set_enabled(source_, SD_EVENT_ONESHOT);
}

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  sd_event* event = nullptr;
  if (const int made = sd_event_new(&event); made < 0) return failed("begin", made);
  return std::unique_ptr<EventLoop>(new EventLoop(event));
}

EventLoop::~EventLoop() {
  for (const Source& source : sources_) sd_event_source_disable_unref(source.handle);
  sd_event_unref(event_);
}

EventLoop::Source& EventLoop::new_source(std::function<void(int signal)> callback) {
  sources_.push_back(Source{*this, std::move(callback)});
  return sources_.back();
}

// The libraries between here and run() are C's: no exception goes through them.
void EventLoop::call(Source& source, int signal) noexcept {
  try {
    source.callback(signal);
  } catch (...) {
    source.loop.thrown_ = std::current_exception();
    source.loop.stop();
  }
}

// Takes back what could not be added.
Result<void> EventLoop::prepare(Source& source, Priority priority, int added, const char* what) {
  if (added >= 0) added = sd_event_source_set_priority(source.handle, static_cast<int>(priority));
  if (added >= 0) return {};
  sd_event_source_disable_unref(source.handle);
  sources_.pop_back();
  return failed(what, added);
}

int EventLoop::on_io(sd_event_source*, int, std::uint32_t, void* its) {
  return call(*static_cast<Source*>(its), 0), 0;
}

Result<void> EventLoop::add_descriptor(int fd, Priority priority, Callback callback) {
  Source& source = new_source([call = std::move(callback)](int) { call(); });
  int added = sd_event_add_io(event_, &source.handle, fd, EPOLLIN, on_io, &source);
  if (added >= 0)
    added = sd_event_source_set_ratelimit(source.handle, microseconds_of(kShareTime), kMostCalls);
  return prepare(source, priority, added, "wait for a descriptor");
}

Result<void> EventLoop::add_hangup(int fd, Priority priority, Callback callback) {
  Source& source = new_source([call = std::move(callback)](int) { call(); });
  int added = sd_event_add_io(event_, &source.handle, fd, EPOLLHUP, on_io, &source);
  if (added >= 0) added = sd_event_source_set_enabled(source.handle, SD_EVENT_ONESHOT);
  return prepare(source, priority, added, "wait for the end of a descriptor");
}

Result<EventLoop::Timer> EventLoop::add_timer(Priority priority, Callback callback) {
  Source& source = new_source([call = std::move(callback)](int) { call(); });
  const auto due = [](sd_event_source*, std::uint64_t, void* its) {
    return call(*static_cast<Source*>(its), 0), 0;
  };
  int added =
      sd_event_add_time(event_, &source.handle, CLOCK_MONOTONIC, 0, kAccuracyUs, due, &source);
  if (added >= 0) added = sd_event_source_set_enabled(source.handle, SD_EVENT_OFF);
  TRY(prepare(source, priority, added, "wait for a time"));
  return Timer(source.handle);
}

Result<void> EventLoop::add_signals(std::span<const int> numbers, Priority priority,
                                    const std::function<void(int number)>& callback) {
  const auto came = [](sd_event_source*, const signalfd_siginfo* info, void* its) {
    return call(*static_cast<Source*>(its), static_cast<int>(info->ssi_signo)), 0;
  };
  for (const int number : numbers) {
    Source& source = new_source(callback);
    const int added = sd_event_add_signal(event_, &source.handle, number, came, &source);
    TRY(prepare(source, priority, added, "wait for a signal"));
  }
  return {};
}

Result<void> EventLoop::run() {
  const int ended = sd_event_loop(event_);
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  if (ended < 0) return failed("go on", ended);
  return {};
}

void EventLoop::stop() { (void)sd_event_exit(event_, 0); }

}  // namespace derate
