// The choice for a GPU without kernels: parked at a clock of ours, or left to its own control,
// which goes lower where no context is open.
#pragma once

#include <optional>

#include "core/estimate.h"

namespace derate {

class OwnRest {
 public:
  // A GPU whose own clock is still above the parked one after so long is parked again. An H200
  // needs 2.4 s to its lowest clock after its last context has gone; other GPUs are assumed to need
  // less than this.
  static constexpr Duration kTrial = std::chrono::seconds(10);

  // To be called each tick of an idle GPU. Returns whether the GPU is left to its own control;
  // otherwise it gets the clock `parked`. A reading without an SM clock returns false.
  bool leave(const Estimate& estimate, Megahertz parked);
  // It works again.
  void wake();

 private:
  // A trial begins so long after the work has ended. After a failed trial the next one waits,
  // longer each time.
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

  // To be called each tick of an idle GPU. Returns whether its memory clock is locked low: not
  // while the GPU is left to its own control, nor with a display, whose picture may flicker.
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
