#include "tune/work_meter.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace derate {
namespace {

// Between the halves of what was measured, relative: less is not told from drift.
constexpr double kStep = 0.02;
// ... in standard errors, so that noise alone rarely drops a half.
constexpr double kStepErrors = 3;
constexpr std::size_t kStepBlocks = 8;

WorkSpan sum(std::span<const WorkSpan> blocks) {
  WorkSpan out;
  for (const WorkSpan& block : blocks) add_span(out, block);
  return out;
}

// Relative standard error of the ratio of sums, cost by work (Cochran, Sampling Techniques, 6.4).
template <class Cost>
double ratio_error(std::span<const WorkSpan> blocks, Cost cost) {
  const WorkSpan all = sum(blocks);
  const double ratio = cost(all) / all.work, n = static_cast<double>(blocks.size());
  double squares = 0;
  for (const WorkSpan& block : blocks) {
    const double off = cost(block) - ratio * block.work;
    squares += off * off;
  }
  return std::sqrt(squares * n / (n - 1)) / std::max(cost(all), 1e-300);
}

double error_of(std::span<const WorkSpan> blocks) {
  const double time = ratio_error(blocks, [](const WorkSpan& one) { return seconds(one.time()); });
  const double energy =
      ratio_error(blocks, [](const WorkSpan& one) { return std::max(0.0, one.energy.value()); });
  return std::max(time, energy);
}

double rate_of(const WorkSpan& span) { return span.work / seconds(span.time()); }

// Whether the rate made a step between the two halves.
bool stepped(std::span<const WorkSpan> blocks) {
  const auto first = blocks.first(blocks.size() / 2), second = blocks.last(blocks.size() / 2);
  const double off = std::abs(rate_of(sum(first)) / rate_of(sum(second)) - 1);
  const double errors = std::hypot(error_of(first), error_of(second));
  return off > std::max(kStep, kStepErrors * errors);
}

}  // namespace

void add_span(WorkSpan& into, const WorkSpan& span) {
  into.end += span.time();
  into.work += span.work;
  into.energy += span.energy;
}

std::optional<Joules> SpanMaker::energy_at(Instant time) const {
  if (points_.empty() || time < points_.front().time || time > points_.back().time)
    return std::nullopt;
  const auto after =
      std::lower_bound(points_.begin(), points_.end(), time,
                       [](const Point& point, Instant at) { return point.time < at; });
  if (after->time == time) return after->energy;
  const Point &a = *std::prev(after), &b = *after;
  return a.energy + (b.energy - a.energy) * (seconds(time - a.time) / seconds(b.time - a.time));
}

std::optional<WorkSpan> SpanMaker::add(Instant now, std::optional<Joules> energy,
                                       const std::optional<Progress>& work) {
  if (energy && (points_.empty() || points_.back().time < now)) points_.push_back({now, *energy});
  while (points_.size() > 2 && points_[1].time < now - kKept) points_.pop_front();
  if (!work || !std::isfinite(work->done)) return std::nullopt;
  const Instant reported = std::min(work->time, now);  // a clock that is ahead
  const bool same = last_ && last_->run == work->run && last_->done <= work->done;
  if (same && (last_->done == work->done || reported <= last_->time)) return std::nullopt;
  const auto at = energy_at(reported);
  if (!at) return std::nullopt;
  std::optional<WorkSpan> out;
  if (same) out = WorkSpan{last_->time, reported, work->done - last_->done, *at - energy_at_last_};
  last_ = work;
  last_->time = reported;
  energy_at_last_ = *at;
  return out;
}

std::optional<Instant> SpanMaker::last_report() const {
  if (!last_) return std::nullopt;
  return last_->time;
}

std::vector<bool> WorkMeter::paused() const {
  std::vector<bool> out(spans_.size());
  if (spans_.size() < kToTell) return out;
  std::vector<double> each;
  for (const WorkSpan& span : spans_) each.push_back(seconds(span.time()) / span.work);
  auto sorted = each;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  for (std::size_t i = 0; i < each.size(); ++i) out[i] = each[i] > kPause * *middle;
  return out;
}

WorkSpan WorkMeter::pauses() const {
  WorkSpan out;
  const auto paused = this->paused();
  for (std::size_t i = 0; i < spans_.size(); ++i)
    if (paused[i]) add_span(out, spans_[i]);
  return out;
}

std::vector<WorkSpan> WorkMeter::blocks() const {
  std::vector<WorkSpan> out;
  WorkSpan block;
  const auto paused = this->paused();
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (paused[i]) continue;
    add_span(block, spans_[i]);
    if (block.time() < kBlock) continue;
    out.push_back(std::exchange(block, {}));
  }
  if (out.empty() && block.work > 0) out.push_back(block);
  return out;
}

std::optional<double> WorkMeasure::scatter() const {
  if (!error) return std::nullopt;
  return *error * std::sqrt(blocks);
}

std::optional<WorkMeasure> WorkMeter::measure() const {
  const auto all = blocks();
  if (all.empty()) return std::nullopt;
  std::span<const WorkSpan> kept(all);
  while (kept.size() >= kStepBlocks && stepped(kept)) kept = kept.last(kept.size() / 2);
  const WorkSpan total = sum(kept);
  WorkMeasure out{rate_of(total), total.energy / total.time()};
  out.blocks = static_cast<int>(kept.size());
  out.spans = spans_.size();
  out.time = total.time();
  if (out.blocks >= kLeastBlocks) out.error = error_of(kept);
  return out;
}

}  // namespace derate
