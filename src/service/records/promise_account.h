// Account of a policy's promise of performance, by its own estimate: reports once when the promise
// is not kept any more, and once when it is again.
#pragma once

#include <optional>

#include "base/units.h"
#include "govern/fleet/managed_gpu.h"

namespace derate {

// Performance as the policy estimates it and as it was promised, 1 = at the highest clock, of what
// was really in force. Empty: the policy tells no estimate, or promises nothing.
struct JudgedPerformance {
  std::optional<double> estimated, promised;
};
// Of a GPU that is observed, idle or left to another tool, of a dry run and without a fresh reading
// nothing is judged.
JudgedPerformance judged_performance(const ManagedGpu& gpu, const Record& record);

// The account is in seconds of work at the highest clock: what is done beyond the promise is saved
// up, as assure itself does, and what is missing is told when it is more than kMostMissing. It is
// kept again when the mean over a minute is. Short probes and noise around the promise tell
// nothing.
class PromiseAccount {
 public:
  static constexpr double kMostSaved = 1.5;    // s: as WorkAccount::kMostSaved
  static constexpr double kMostMissing = 0.6;  // s: a hundredth of a minute
  static constexpr Duration kKeptFor = std::chrono::minutes(1);

  struct Verdict {
    bool broken = false;
    double performance = 0, promise = 0;  // means over `time`
    Duration time{};
  };
  // What was so for the time before now. Tells a change.
  std::optional<Verdict> add(const JudgedPerformance& judged, Duration time);
  bool broken() const { return broken_; }

 private:
  struct Mean {
    double estimated_s = 0, promised_s = 0;
    Duration time{};
    void add(double estimated, double promised, Duration by);
  };
  Verdict turn(bool broken);

  double saved_s_ = 0;  // negative: missing
  bool broken_ = false;
  Mean mean_;  // since nothing was missing; while it is broken of this minute
};

}  // namespace derate
