// The check that a clock lock takes effect. NVML reports that a write succeeded and has no getter
// for the lock, so the proof is the SM clock under load: it must reach the lock within two seconds
// and stay there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "core/estimate.h"

namespace derate {

enum class LockState : std::uint8_t {
  none,            // nothing is locked
  unproven,        // no load yet, or too early to tell
  effective,       // the clock under load is the lock's, or one step beside it
  without_effect,  // two seconds on, and the clock under load is another
  drifted,         // it was effective, and somebody changed the clock since
};

class ClockLockVerifier {
 public:
  // How long a lock may take to show, and a deviation may last before it counts.
  static constexpr Duration kPatience = std::chrono::seconds(2);

  // `supported`: the GPU's SM clocks, ascending. `minimum_is_a_request`: the driver may let the
  // clock fall below the lock, and a lower clock proves nothing (Blackwell:
  // open-gpu-kernel-modules#1314).
  explicit ClockLockVerifier(std::span<const Megahertz> supported,
                             bool minimum_is_a_request = false)
      : supported_(supported.begin(), supported.end()),
        minimum_is_a_request_(minimum_is_a_request) {}

  void locked(Megahertz clock, Instant now);
  void released();
  // What the lock is known to be after this reading. A reading without load, without a clock, or
  // while something else holds the clock down proves nothing.
  LockState look(const Estimate& estimate);

  LockState state() const { return state_; }
  // The clock has been another for less than kPatience: not told yet. What no load proves or
  // disproves any more is no doubt after that.
  bool in_doubt(Instant now) const {
    return state_ == LockState::effective && off_ && now - *off_ < kPatience;
  }
  // The clock that contradicted the lock last.
  Megahertz seen() const { return seen_; }

 private:
  bool within_a_step(Megahertz clock) const;

  std::vector<Megahertz> supported_;
  bool minimum_is_a_request_ = false;
  LockState state_ = LockState::none;
  Megahertz lock_{}, seen_{};
  Instant since_{};             // of the write
  std::optional<Instant> off_;  // since when the clock has been another
};

}  // namespace derate
