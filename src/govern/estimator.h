// Judges the readings of one GPU: whether they are fresh, and whether the GPU is idle or hot.
#pragma once

#include <optional>

#include "core/estimate.h"
#include "govern/safety.h"
#include "telemetry/sampler.h"

namespace derate {

// Our own locks; empty: none.
struct LocksInForce {
  std::optional<Megahertz> clock, memory;
  bool operator==(const LocksInForce&) const = default;
};

// Detects work that the utilisation does not show, as of a counter that stands still: it reads 0,
// and the GPU draws clearly more power than it did since, at this clock or a higher one. That holds
// for kLongest, since a context without kernels can draw more, too.
class UnseenWork {
 public:
  static constexpr Duration kLongest = std::chrono::seconds(30);
  // After one of our locks was loosened, the power at rest is learned anew for so long: power
  // sensors show means of the past.
  static constexpr Duration kSettles = std::chrono::seconds(2);
  bool is_there(const Estimate& estimate, const LocksInForce& locks);

 private:
  struct Rest {
    Watts least{};  // drawn since the utilisation reads 0
    Megahertz clock{};
  };
  void rest(const Estimate& estimate, const LocksInForce& locks);

  LocksInForce locks_;
  Instant settled_ = Instant::min();
  std::optional<Rest> rest_;  // empty: the utilisation reads more
  std::optional<Instant> since_;
};

class Estimator {
 public:
  // A policy that is run as published gets each utilisation as it was read.
  Estimator(const SafetyRules& rules, const Capability& capability, bool as_published);

  Estimate estimate(const Reading& reading, const WorkStatus& work, const LocksInForce& locks,
                    Instant now);

 private:
  bool launching(const WorkStatus& work, Instant now);
  bool idle(const Estimate& estimate);
  bool hot(const Sample& sample);

  SafetyRules rules_;
  bool as_published_;
  std::optional<bool> display_;       // when the GPU was opened
  std::optional<Celsius> hot_above_;  // the thermal rule's limit
  bool hot_ = false;
  std::optional<Instant> idle_since_;
  UnseenWork unseen_;
  std::optional<Progress> last_launches_;  // when their count grew last
};

}  // namespace derate
