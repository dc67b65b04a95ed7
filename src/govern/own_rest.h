// The choice for a GPU without kernels: parked at a clock of ours, or left to its own control,
// which goes lower where no context is open.
#pragma once

#include <optional>

#include "core/estimate.h"

namespace derate {

class OwnRest {
 public:
  // An H200 left by its last context is at its lowest clock within 2.4 s; other GPUs are assumed to
  // need less than this. One whose own clock is still higher then is parked.
  static constexpr Duration kTrial = std::chrono::seconds(10);

  // Called for each tick of an idle GPU. Whether the GPU is to be left to its own control; `parked`
  // is the clock that it gets else. Without an SM clock to judge by it never is.
  bool leave(const Estimate& estimate, Megahertz parked);
  // It works again.
  void wake();

 private:
  // Trials begin so long after the work has ended, and after one that failed; longer each time.
  static constexpr Duration kFirst = std::chrono::seconds(3);
  static constexpr Duration kAgainFirst = std::chrono::minutes(1);
  static constexpr Duration kAgainLast = std::chrono::minutes(10);
  void heed(const std::optional<int>& tenants);

  bool left_ = false;
  std::optional<Instant> idle_since_;
  std::optional<Instant> above_at_;  // left, and the clock above the parked one: the last tick
  Duration above_for_{};             // ... in all, over short rests, too
  Instant next_trial_ = Instant::min();
  Duration again_after_ = kAgainFirst;
  std::optional<int> tenants_;  // as counted last
};

// The choice to lock the memory clock of a GPU at rest to its lowest: with a context open it stays
// at its highest, and draws 15 to 95 W more on boards with GDDR memory (docs/operations.md).
class MemoryRest {
 public:
  // `lowest`: the GPU's lowest memory clock; `after`: of a rest, before it is parked.
  MemoryRest(Megahertz lowest, Duration after) : lowest_(lowest), after_(after) {}

  // Called for each tick of an idle GPU; `left` to its own control, it needs no lock. Never while a
  // display is attached: the picture may flicker, and be lost.
  bool park(const Estimate& estimate, bool left);
  bool parked() const { return parked_; }
  void wake() { *this = MemoryRest(lowest_, after_); }

 private:
  Megahertz lowest_;
  Duration after_;
  std::optional<Instant> idle_since_;
  bool parked_ = false;
};

}  // namespace derate
