// The loop of a program that does rounds and serves sockets in one thread: descriptors, timers and
// signals, each with a callback. It asks no clock: due times are those of CLOCK_MONOTONIC, which
// SystemClock has.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/result.h"

struct sd_event;
struct sd_event_source;

namespace derate {

// Blocks the signals in this thread and in all that it starts from now on, so that the loop gets
// them. It comes before any thread is started. They are still blocked when the loop is gone: one
// that comes then does not end a program that is giving back what it has. Who forks sets another
// mask in the child, which would otherwise hear nothing.
void block_signals(std::span<const int> numbers);

class EventLoop {
 public:
  // Of what is ready at the same time, the callbacks of a higher priority come first; those of the
  // same one in the order in which they became ready.
  enum class Priority : std::uint8_t { heartbeat, round, socket };
  using Callback = std::function<void()>;
  // A descriptor's callback is called at most kMostCalls times in each kShareTime: a sender
  // who floods it has had its share then, and what has come waits in the kernel.
  static constexpr unsigned kMostCalls = 256;
  static constexpr Duration kShareTime = std::chrono::milliseconds(100);

  // One of the loop's, which must outlive it; at first it is not set.
  class Timer {
   public:
    Timer() = default;  // of no loop
    // Calls once when `due` has come, which may be past; a due time that was set before is void.
    // Nothing when the loop has ended.
    void set(Instant due);

   private:
    friend class EventLoop;
    explicit Timer(sd_event_source* source) : source_(source) {}
    sd_event_source* source_ = nullptr;
  };

  // Errors: io.
  static Result<std::unique_ptr<EventLoop>> create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  // Callbacks may call everything here but run(). A descriptor that is added outlives the loop.
  // Errors: invalid_argument for what cannot be waited for: a regular file, a descriptor or a
  // signal for the second time, a signal that is not blocked; io.

  // Calls while `fd` can be read from or has an error.
  Result<void> add_descriptor(int fd, Priority priority, Callback callback);
  // Calls once when the other end of `fd` is closed; what comes on it is left alone.
  Result<void> add_hangup(int fd, Priority priority, Callback callback);
  Result<Timer> add_timer(Priority priority, Callback callback);
  // Calls for each that comes; block_signals() comes first. One that comes again before it was
  // called for counts once.
  Result<void> add_signals(std::span<const int> numbers, Priority priority,
                           const std::function<void(int number)>& callback);

  // Calls back until stop(), once in the loop's life. An exception of a callback ends it and is
  // thrown on. Errors: io.
  Result<void> run();
  // No callback is called after the one that calls this.
  void stop();

 private:
  struct Source {
    EventLoop& loop;
    std::function<void(int signal)> callback;
    sd_event_source* handle = nullptr;
  };
  explicit EventLoop(sd_event* event) : event_(event) {}
  Source& new_source(std::function<void(int signal)> callback);
  Result<void> prepare(Source& source, Priority priority, int added, const char* what);
  static void call(Source& source, int signal) noexcept;
  static int on_io(sd_event_source* source, int fd, std::uint32_t events, void* its);

  sd_event* event_;
  std::deque<Source> sources_;  // their addresses stay
  std::exception_ptr thrown_;
};

}  // namespace derate
