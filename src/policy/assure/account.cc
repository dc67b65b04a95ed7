#include "policy/assure/account.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr Duration kWakeUp = std::chrono::milliseconds(50);  // sensors and switch, of a new job
constexpr double kTicksToTell = 3;  // until launches of a program that has begun are counted
constexpr double kToldAfter = 1.5;  // ticks after a phase began launches tell it, on average
constexpr double kHorizon = 15;     // s over which what was earned or lost is made even
constexpr double kMostEarned = 0.15;
constexpr double kMostSpent = 0.3;  // of performance, by one of phases that take turns
// Relative sd of the highest clock's rate of work against what it was: halves of a run of steady
// work differed by up to 0.1 % on an H200, some kernels' by more (docs/progress.md).
constexpr double kRateDrift = 0.002;
constexpr double kCertain = 0.1;  // relative sd: a rate known less well measures nothing
// Spent to learn phases that take turns, at most: s, and the share of a job's time.
constexpr double kProbed = 3.6, kProbedShare = 0.005;
constexpr double kProbedTold = 6;  // ... where launches tell the phases

}  // namespace

void Account::begin(const Estimate& estimate, const AssureOptions& options) {
  const bool unread = estimate.launching && *estimate.gpu_utilisation <= Fraction(0);
  const double unseen = (unread ? kTicksToTell : 1) * options.tick + seconds(kWakeUp);
  work->begin(estimate.sm_clock ? std::min(0.0, *estimate.sm_clock / options.highest - 1) * unseen
                                : 0);
  probed = {};
}

void Account::take_promise(const WorkStatus& status, double own_delta) {
  const auto promise = throughput_promise(status);
  delta = promise ? std::clamp(max_loss(*promise).value(), 0.0, 0.5) : own_delta;
  saves_up = !(promise && promise->every_phase) && !status.may_wait;
}

void Account::count(double performance, Duration time) {
  counted = performance;
  since_beat.time += seconds(time);
  since_beat.work += counted * seconds(time);
  work->count(domain, counted, 1 - delta, seconds(time));
}

void Account::count_measured(double beat_rate, const Belief& reference, double z) {
  if (!(reference.sd <= kCertain)) return;
  const double sd = std::hypot(reference.sd, kRateDrift);
  const double measured = std::exp(std::log(beat_rate) - reference.mean - z * sd);
  work->credit(std::min(1.0, measured) * over_beat.time - over_beat.work);
}

void Account::count_late(double in_truth, double tick) {
  work->correct((in_truth - counted) * kToldAfter * tick);
}

double Account::earned(bool dry_run) const {
  if (!saves_up || dry_run) return 0;
  return std::clamp(work->saved_s() / kHorizon, -delta, kMostEarned);
}

double Account::spare() const {
  return std::clamp(work->spare_s() / kHorizon, -delta, kMostEarned);
}

double Account::promised(double earned) const {
  return std::log((1 - delta - earned) / work->others(domain));
}

double Account::promised_of(double share, Duration left) const {
  const double most = work->saved_s() / std::max(1.0, seconds(left));
  return std::max(share, promised(std::clamp(most, -delta, kMostSpent)));
}

Duration Account::budget(Duration age, bool told) const {
  return from_seconds((told ? kProbedTold : kProbed) + kProbedShare * seconds(age));
}

bool Account::may_probe(Duration age, bool told, Duration window) const {
  return probed + window + std::chrono::milliseconds(600) < budget(age, told);
}

void count_spending(Spending& to, const Estimate& estimate, const SpentTick& tick,
                    const AssureOptions& options) {
  const Spent spent{tick.time, *estimate.power * tick.time};
  // Where the power limit holds the clock below the lock, or about there, it would at the highest
  // clock, too.
  const bool limited = (estimate.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0;
  const bool capped = limited && *estimate.sm_clock < tick.asked * 0.995;
  // What is read in a dry run is then not of the highest clock, and no curve tells of less.
  if (limited && options.dry_run) return;
  const bool highest = tick.asked <= Megahertz(0) || tick.asked >= options.highest * 0.995;
  // A dry run has not learned what would let it ask for less.
  const bool unsaved = options.dry_run ? tick.unsaved : tick.unsaved || highest || capped;
  if (unsaved) return to.add_unsaved(spent);
  // A clock below the envelope is the GPU's own doing, as while it wakes up: no curve covers it.
  const Megahertz clock = options.dry_run ? tick.asked : *estimate.sm_clock;
  to.add(options.position(std::max(clock, tick.lowest)), spent);
}

}  // namespace derate
