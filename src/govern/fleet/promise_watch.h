// State of the promise of performance of a GPU, by its policy's own estimate: kept, below for N s,
// broken. This is the one definition: status, state.json, the metrics, events, the history and the
// page show it (docs/saving.md, "Whether a promise is kept").
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "core/record.h"

namespace derate {

struct ManagedGpu;

enum class PromiseState : std::uint8_t {
  none,       // nothing is promised: no policy, a policy without a promise, a dry run
  kept,       // also of a GPU without work
  below,      // by the estimate, for less than PromiseWatch::kBrokenAfter
  broken,     // for so long
  not_known,  // no fresh reading, no estimate, or the policy's clock is not in force
};
inline constexpr int kPromiseStates = 5;
// "none", "kept", "below", "broken", "not known".
const char* to_string(PromiseState state);

// Performance as the policy estimates it and as it was promised, 1 = at the highest clock, of what
// was really in force. Empty: the policy tells no estimate, or promises nothing.
struct JudgedPerformance {
  std::optional<double> estimated, promised;
};
// Of a GPU that is observed, idle or left to another tool, of a dry run and without a fresh reading
// nothing is judged.
JudgedPerformance judged_performance(const ManagedGpu& gpu, const Record& record);

// All that a record says of it. `state` is none, kept (to be judged by the estimate) or not_known.
struct PromiseReading {
  PromiseState state = PromiseState::none;
  JudgedPerformance judged;
  bool idle = false;
};
PromiseReading promise_reading(const ManagedGpu& gpu, const Record& record);

struct PromiseNow {
  PromiseState state = PromiseState::none;
  Duration below{};  // for so long it has been below; judged time only
  // Means over that time; where it is not below, those of the last record. Empty: none is known.
  std::optional<double> performance, promised;
  bool operator==(const PromiseNow&) const = default;

  bool is_below() const { return state == PromiseState::below || state == PromiseState::broken; }
};

// A promise is one of work. The watch adds up (estimated - promised + kGrace) x time, in seconds of
// work at the highest clock. While the sum is negative the promise is below. Work that was done
// beyond the promise may be spent, as the policy spends it, so probes and noise tell nothing.
class PromiseWatch {
 public:
  static constexpr double kGrace = 0.005;      // of an estimate that is at the promise; assumed
  static constexpr double kMostSaved = 1.5;    // s: as WorkAccount::kMostSaved
  static constexpr double kMostMissing = 0.3;  // s: made up for at the promise in a minute
  static constexpr Duration kBrokenAfter = std::chrono::seconds(30);
  // Between two records what was so is taken to go on for no longer, or for two of the policy's
  // ticks.
  static constexpr Duration kLongestHeld = std::chrono::seconds(2);

  // The next record of the GPU, `since_last` after the one before.
  void take(const PromiseReading& reading, Duration since_last);
  const PromiseNow& now() const { return now_; }

 private:
  void add(Duration time);
  void begin_anew();

  PromiseNow now_;
  double saved_s_ = 0;                       // negative: missing
  double estimated_s_ = 0, promised_s_ = 0;  // sums over `now_.below`
  JudgedPerformance judged_;                 // by the last record
};

// Takes the record of a GPU that comes after its `last`.
void follow_promise(ManagedGpu& gpu, const Record& record);

}  // namespace derate
