#include "signal/progress_count.h"

#include <algorithm>
#include <utility>

namespace derate {

void ProgressCount::add(Progress report, std::uint64_t& runs) {
  const bool another_run = std::exchange(reported_run_, report.run) != report.run;
  const bool same =
      last_ && !another_run && last_->unit == report.unit && last_->done <= report.done;
  // A stepped time of day must not turn the order of two reports around.
  if (last_) report.time = std::max(report.time, last_->time);
  if (same) interval_ = std::max(interval_ / 2, report.time - last_->time);
  report.run = same ? last_->run : ++runs;
  last_ = report;
}

Duration ProgressCount::patience() const {
  return std::max(kStale, 5 * std::min(interval_, kLongestInterval));
}

std::optional<double> ProgressRate::rate(const std::optional<Progress>& progress, Instant since) {
  if (!progress) {
    last_.reset();
    interval_ = {};
    return std::nullopt;
  }
  const std::optional<Progress> before = last_;
  const bool same_run = before && before->run == progress->run;
  if (same_run && before->time == progress->time) return std::nullopt;
  last_ = progress;
  if (before) interval_ = same_run ? progress->time - before->time : Duration{};
  const bool follows = same_run && before->time >= since && progress->time > before->time &&
                       progress->done > before->done;
  if (!follows) return std::nullopt;
  return (progress->done - before->done) / seconds(progress->time - before->time);
}

}  // namespace derate
