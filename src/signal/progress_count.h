// Counts of work as they are reported: which reports are of one run, until when the last one holds,
// and the rate between two.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "core/progress.h"

namespace derate {

class ProgressCount {
 public:
  // A count expires when it is older than this and than five of its intervals, ...
  static constexpr Duration kStale = std::chrono::seconds(10);
  // ... which are taken to be no longer than this.
  static constexpr Duration kLongestInterval = std::chrono::minutes(2);

  // `report.run` is the source's own: another one, another unit, or less done than before begins a
  // run, which takes the next number of `runs`, the runs of all counts so far.
  void add(Progress report, std::uint64_t& runs);
  const std::optional<Progress>& last() const { return last_; }
  // How long a source may be silent.
  Duration patience() const;
  bool holds(Instant now) const { return last_ && now - last_->time <= patience(); }

 private:
  std::optional<Progress> last_;
  std::uint64_t reported_run_ = 0;
  Duration interval_{};  // between reports, the longest of late
};

// The rate of work between two beats, while the clock is one.
class ProgressRate {
 public:
  // Empty when there is nothing new. `since`: from when on the clock has been what it is.
  std::optional<double> rate(const std::optional<Progress>& beat, Instant since);
  // As it was told last.
  const std::optional<Progress>& last() const { return last_; }
  // Between the last two of a source; zero: there were no two yet.
  Duration interval() const { return interval_; }

 private:
  std::optional<Progress> last_;
  Duration interval_{};
};

}  // namespace derate
