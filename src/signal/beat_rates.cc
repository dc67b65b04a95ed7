#include "signal/beat_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

constexpr double kSameClock = 0.003;  // in logs
constexpr Duration kSpan = std::chrono::seconds(10);
constexpr int kLeastBeats = 10;
constexpr std::size_t kMostKept = 256;  // means of clocks and phases

}  // namespace

void BeatRates::begin(const Estimate& estimate) {
  const Progress& now = *estimate.work.progress;
  span_ = {
      .first = now, .phase = estimate.work.phase, .clock = *estimate.sm_clock, .newest = now.time};
}

void BeatRates::end(const Progress& last) {
  const double rate = (last.done - span_->first.done) / seconds(last.time - span_->first.time);
  const double watts = span_->watts / span_->ticks;
  if (!(rate > 0) || !(watts > 0) || first_.size() >= kMostKept) return;
  const Mean mean{std::log(rate), std::log(watts)};
  const auto key = std::make_pair(std::lround(span_->clock.value()), span_->phase);
  const auto [at, is_first] = first_.emplace(key, mean);
  if (is_first) return;
  Mean& first = at->second;
  const double by = mean.log_rate - first.log_rate;
  const bool rests = std::abs(mean.log_power - first.log_power) < kPowerRests;
  const double before = std::exchange(first.moved_last, rests && std::abs(by) > kMoves ? by : 0);
  if (before * first.moved_last <= 0) return;  // not twice to one side
  const double both = std::min(std::abs(before), std::abs(by));
  const double share = std::expm1(by > 0 ? both : -both);
  if (!moved_ || std::abs(share) > std::abs(*moved_)) moved_ = share;
}

void BeatRates::add(const Estimate& estimate) {
  const auto& progress = estimate.work.progress;
  if (source_of(progress) != ProgressSource::heartbeats || !estimate.sm_clock || !estimate.power) {
    span_.reset();
    return;
  }
  const bool goes_on = span_ && span_->first.run == progress->run &&
                       span_->first.process == progress->process &&
                       span_->phase == estimate.work.phase &&
                       std::abs(std::log(*estimate.sm_clock / span_->clock)) < kSameClock;
  if (!goes_on) {
    begin(estimate);
    return;
  }
  span_->watts += estimate.power->value();
  ++span_->ticks;
  if (progress->time == span_->newest) return;
  span_->newest = progress->time;
  // The beat that was the newest at the begin belongs to the clock before.
  if (span_->beats++ == 0) {
    span_->first = *progress;
    span_->watts = estimate.power->value();
    span_->ticks = 1;
    return;
  }
  if (progress->time - span_->first.time < kSpan || span_->beats <= kLeastBeats) return;
  end(*progress);
  begin(estimate);
}

}  // namespace derate
