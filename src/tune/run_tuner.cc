#include "tune/run_tuner.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

constexpr double kErrors = 3;  // standard errors that are no change

// What cost_of() weighs energy by: with max_slowdown it is the energy that is made small.
double eta_of(const Selector& selector) {
  switch (selector.kind) {
    case Selector::Kind::cost:
      return selector.eta;
    case Selector::Kind::time:
      return 0;
    case Selector::Kind::energy:
    case Selector::Kind::max_slowdown:
      break;
  }
  return 1;
}

bool usable(const KnobReading& reading, const std::vector<double>& settings) {
  return std::isfinite(reading.rate) && reading.rate > 0 && std::isfinite(reading.power.value()) &&
         reading.power.value() > 0 &&
         std::binary_search(settings.begin(), settings.end(), reading.setting);
}

// How much slower than at the highest setting the job may be at any.
double guard_of(const KnobSearchOptions& options) {
  const bool slowdown = options.selector.kind == Selector::Kind::max_slowdown;
  return slowdown ? options.selector.slowdown : options.guard;
}

// A search that knows the readings, but for those that the guard forbids.
KnobSearch search_with(const KnobSearchOptions& options, std::span<const KnobReading> readings) {
  KnobSearch out(options);
  double fastest = 0;
  for (const KnobReading& reading : readings)
    if (usable(reading, options.settings)) fastest = std::max(fastest, reading.rate);
  for (const KnobReading& reading : readings) {
    if (!usable(reading, options.settings)) continue;
    if (reading.rate * guard_of(options) >= fastest)
      out.add(reading);
    else
      out.rule_out(reading.setting);
  }
  return out;
}

}  // namespace

RunTuner::RunTuner(RunTunerOptions options)
    : options_(std::move(options)), search_(options_.search) {
  options_.search.tie = std::max(options_.search.tie, kTie);
  search_ = search_with(options_.search, options_.known);
}

std::optional<KnobReading> RunTuner::best() const {
  if (search_.readings().empty()) return std::nullopt;
  return search_.best();
}

std::optional<KnobReading> RunTuner::reference() const {
  if (search_.readings().empty() || search_.reference().setting != options_.search.settings.back())
    return std::nullopt;
  return search_.reference();
}

Joules RunTuner::unit_cost(const KnobReading& reading) const {
  const Duration time = from_seconds(1);
  return cost_of(eta_of(options_.search.selector), options_.search.max_power, reading.power * time,
                 time) /
         reading.rate;
}

Joules RunTuner::profiling_cost() const {
  const auto best = this->best();
  if (!best || profiled_.time() <= Duration::zero()) return cost_;
  const Joules paid = cost_of(eta_of(options_.search.selector), options_.search.max_power,
                              profiled_.energy, profiled_.time());
  return cost_ + std::max(Joules(), paid - unit_cost(*best) * profiled_.work);
}

Duration RunTuner::profiling_time(Instant now) const {
  const bool under_way = stage_ == Stage::profiling && has_progress_;
  return time_ + (under_way ? now - profiled_.begin : Duration::zero());
}

// --- what is wanted ---

void RunTuner::ask(double setting, Instant now) {
  meter_.clear();
  changed_ = 0;
  last_in_force_ = now;
  if (std::exchange(asked_, setting) == setting) return;
  asked_at_ = now;
  in_force_since_.reset();
  settled_at_.reset();
}

// To the next reading, or to the best when there is none.
void RunTuner::go_on(Instant now) {
  if (const auto next = search_.next()) {
    stage_ = Stage::profiling;
    ask(*next, now);
    return;
  }
  if (stage_ == Stage::profiling && begun_) end_profiling(now);
  stage_ = Stage::holding;
  ask(search_.best().setting, now);
}

void RunTuner::begin_profiling(Instant now) {
  profiled_ = {.begin = now, .end = now};
  stage_ = Stage::profiling;
}

void RunTuner::end_profiling(Instant now) {
  cost_ = profiling_cost();
  last_profiling_ = now - profiled_.begin;
  time_ += last_profiling_;
  profiled_ = {.begin = now, .end = now};
  tuned_at_ = now;
  ++tunings_;
}

Reason RunTuner::why() const {
  const bool watts = options_.knob == Knob::power_limit;
  const double readings = static_cast<double>(search_.readings().size());
  switch (stage_) {
    case Stage::silent:
      if (!has_progress_ && !energy_seen_)
        return {"cannot tune, at the highest setting: the GPUs tell neither energy nor power"};
      return {"cannot tune, at the highest setting: the job has not said how far it is for long"};
    case Stage::refused:
      return {"cannot tune, at the highest setting: what was set did not come into force"};
    case Stage::holding:
      if (!settled_at_ || !spans_.last_report())
        return {watts ? "the best of {0:.0f} readings, {1:.0f} W"
                      : "the best of {0:.0f} readings, {1:.0f} MHz",
                {readings, asked_}};
      return {watts ? "the best of {0:.0f} readings, {1:.0f} W; the job is watched for changes"
                    : "the best of {0:.0f} readings, {1:.0f} MHz; the job is watched for changes",
              {readings, asked_}};
    case Stage::profiling:
      break;
  }
  if (!has_progress_) return {"at the highest setting until the job says how far it is"};
  return {watts ? "measuring the job at {0:.0f} W, reading {1:.0f}"
                : "measuring the job at {0:.0f} MHz, reading {1:.0f}",
          {asked_, readings + 1}};
}

// --- what is seen ---

RunOrder RunTuner::next(const RunSight& sight) {
  if (!begun_) {
    begin_profiling(sight.time);
    progress_at_ = sight.time;
    go_on(sight.time);
    begun_ = true;
  }
  energy_seen_ |= sight.energy.has_value();
  const auto span = spans_.add(sight.time, sight.energy, sight.work);
  // What ends a silence is no reading, unless the job has just begun to speak.
  const bool silent = stage_ == Stage::silent && has_progress_;
  look_at_force(sight);
  look_at_silence(sight.time, span);
  if (span && !silent)
    take(*span, sight.time);
  else if (overdue(sight.time))
    leave(meter_.measure(), sight.time);
  return {asked_, stage_ == Stage::profiling && has_progress_, why()};
}

void RunTuner::look_at_force(const RunSight& sight) {
  const Instant now = sight.time;
  if (stage_ == Stage::refused) {
    if (now - refused_at_ >= kTryAgain) go_on(now);
    return;
  }
  if (sight.in_force) {
    last_in_force_ = now;
    if (!in_force_since_) in_force_since_ = now;
    if (!settled_at_ && now - *in_force_since_ >= kSettle) settled_at_ = now;
    return;
  }
  if (settled_at_) meter_.clear();
  in_force_since_.reset();
  settled_at_.reset();
  if (now - last_in_force_ < kRefused || stage_ == Stage::silent) return;
  ask(options_.search.settings.back(), now);
  stage_ = Stage::refused;
  refused_at_ = now;
}

void RunTuner::look_at_silence(Instant now, const std::optional<WorkSpan>& span) {
  if (span) {
    progress_at_ = now;
    longest_span_ = std::max(longest_span_, span->time());
    // Profiling is counted from where the job is first seen to work.
    if (!std::exchange(has_progress_, true) && stage_ == Stage::profiling)
      begin_profiling(span->begin);
    if (stage_ == Stage::silent) go_on(now);
    return;
  }
  const bool at_work = stage_ == Stage::profiling || stage_ == Stage::holding;
  if (!at_work || now - progress_at_ < std::max(kSilence, 3 * longest_span_)) return;
  ask(options_.search.settings.back(), now);
  stage_ = Stage::silent;
}

bool RunTuner::counts(const WorkSpan& span) const {
  return settled_at_ && *settled_at_ - span.begin <= span.time() * kUnsettled;
}

void RunTuner::take(const WorkSpan& span, Instant now) {
  const bool counted = counts(span);
  if (stage_ == Stage::profiling && span.begin >= profiled_.begin) add_span(profiled_, span);
  if (!counted) return;
  if (asked_ == options_.search.settings.back())
    longest_reference_ = std::max(longest_reference_, span.time());
  meter_.add(span);
  if (stage_ == Stage::profiling) judge(now);
  if (stage_ == Stage::holding) watch(now);
}

bool RunTuner::too_slow(const WorkMeasure& measure, double margin) const {
  const auto reference = this->reference();
  return reference && asked_ != reference->setting &&
         measure.rate * guard_of(options_.search) * margin < reference->rate;
}

// Of reports far apart: the next is late by more than the guard.
bool RunTuner::overdue(Instant now) const {
  const auto last = spans_.last_report();
  if (stage_ != Stage::profiling || !settled_at_ || !last || !reference()) return false;
  if (asked_ == options_.search.settings.back() || longest_reference_ < kLeast) return false;
  const double allowed = kOverdue * guard_of(options_.search) * seconds(longest_reference_);
  return seconds(now - std::max(*last, asked_at_)) > allowed + seconds(kSettle);
}

// The setting is slower than the guard allows.
void RunTuner::leave(const std::optional<WorkMeasure>& measure, Instant now) {
  if (measure) too_slow_.push_back({asked_, measure->rate, measure->power});
  search_.rule_out(asked_);
  go_on(now);
}

// Few blocks may lie together by chance: they are not believed to scatter less than those of the
// readings before.
bool RunTuner::enough(const WorkMeasure& measure) const {
  if (measure.time >= kMost) return true;
  if (!measure.error || measure.time < (scatter_blocks_ > 0 ? kLeast : kLeastOfFirst)) return false;
  const double before = scatter_blocks_ > 0 ? std::sqrt(scatter_squares_ / scatter_blocks_) : 0;
  return std::max(*measure.error, before / std::sqrt(measure.blocks)) <= kPrecision;
}

void RunTuner::add_scatter(const WorkMeasure& measure) {
  const auto scatter = measure.scatter();
  if (!scatter) return;
  scatter_squares_ += *scatter * *scatter * (measure.blocks - 1);
  scatter_blocks_ += measure.blocks - 1;
}

void RunTuner::judge(Instant now) {
  const auto measure = meter_.measure();
  if (!measure) return;
  const bool few = measure->spans < WorkMeter::kToTell && usual_reference_ < kMost / 2;
  if (few && too_slow(*measure, 1)) return;
  const bool glanced = measure->blocks >= 2 || measure->time >= kLeast;
  if (glanced && too_slow(*measure, kGlance)) return leave(measure, now);
  if (!enough(*measure)) return;
  add_scatter(*measure);
  const WorkSpan pauses = meter_.pauses();
  profiled_.end -= pauses.time();
  profiled_.energy -= pauses.energy;
  profiled_.work -= pauses.work;
  if (too_slow(*measure, 1)) return leave(measure, now);
  const KnobReading reading{asked_, measure->rate, measure->power};
  if (!usable(reading, options_.search.settings)) return meter_.clear();
  search_.add(reading);
  // The first at the highest setting: what was known before it is judged anew by it.
  if (asked_ == options_.search.settings.back()) {
    usual_reference_ = measure->time / static_cast<Duration::rep>(measure->spans);
    const std::vector<KnobReading> all(search_.readings().begin(), search_.readings().end());
    search_ = search_with(options_.search, all);
  }
  go_on(now);
}

// Whether the work is still what was measured; if not for several looks in a row, it is measured
// anew, beginning where it stands.
void RunTuner::watch(Instant now) {
  const auto measure = meter_.measure();
  if (!measure || measure->time < kWatch) return;
  meter_.clear();
  const KnobReading& expected = search_.best();
  const double error = kErrors * measure->error.value_or(0);
  const bool differs =
      std::abs(measure->rate / expected.rate - 1) > std::max(kRateChange, error) ||
      std::abs(measure->power / expected.power - 1) > std::max(kPowerChange, error);
  changed_ = differs ? changed_ + 1 : 0;
  const KnobReading seen{asked_, measure->rate, measure->power};
  if (changed_ < kLooks || !usable(seen, options_.search.settings)) return;
  const Duration rest = std::max(kShortestRest, from_seconds(kRest * seconds(last_profiling_)));
  if (tuned_at_ && now - *tuned_at_ < rest) return;
  options_.search.start = asked_;
  search_ = KnobSearch(options_.search);
  search_.add(seen);
  too_slow_.clear();
  scatter_squares_ = scatter_blocks_ = 0;
  begin_profiling(now);
  go_on(now);
}

}  // namespace derate
