// Time is a parameter: everything that reads or waits for time takes a Clock&, so that hours of
// control run in a second of test.
#pragma once

#include "base/units.h"

namespace derate {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
  // Time of day, for people and logs; never for arithmetic.
  virtual WallTime wall_now() const = 0;
  // Waits until `deadline`; false when a signal ended the wait early.
  virtual bool sleep_until(Instant deadline) = 0;
  // How long the machine was suspended since it started. now() does not count that time.
  virtual Duration suspended() const { return {}; }
};

// CLOCK_MONOTONIC and CLOCK_REALTIME.
class SystemClock final : public Clock {
 public:
  Instant now() const override;
  WallTime wall_now() const override;
  bool sleep_until(Instant deadline) override;
  // CLOCK_BOOTTIME less CLOCK_MONOTONIC: exact to the time between two calls.
  Duration suspended() const override;
};

// Virtual time: starts at zero, moves only when told to or slept on.
class FakeClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  WallTime wall_now() const override { return WallTime(now_.time_since_epoch()) + wall_offset_; }
  bool sleep_until(Instant deadline) override {
    if (deadline > now_) now_ = deadline;
    return true;
  }
  void advance(Duration by) { now_ += by; }
  // Time of day jumps (NTP, an operator); monotonic time does not.
  void step_wall(Duration by) { wall_offset_ += by; }
  Duration suspended() const override { return suspended_; }
  void suspend(Duration by) {
    suspended_ += by;
    wall_offset_ += by;
  }

 private:
  Instant now_{};
  Duration wall_offset_{}, suspended_{};
};

// What the calling thread has cost so far: for figures about ourselves, never for control.
Duration thread_cpu_time();

}  // namespace derate
