#include "policy/assure/readings.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

constexpr Duration kAfterWindow = std::chrono::milliseconds(150);
// Of two readings at one clock: logs of power, shares of memory.
constexpr double kPartedPower = 0.1, kPartedMemory = 0.25;
constexpr double kWobble = 0.5;
// Beats that come less often are no signal: a clock would be held for long to learn what it costs.
constexpr Duration kSeldom = std::chrono::milliseconds(2500);

SourceReading utilisation_of(const Estimate& estimate) {
  SourceReading out;
  if (estimate.gpu_utilisation) out[0] = estimate.gpu_utilisation->value();
  if (estimate.memory_utilisation) out[1] = estimate.memory_utilisation->value();
  return out;
}

SourceReading activity_of(const Estimate& estimate) {
  SourceReading out;
  std::size_t at = 0;
  for (const ActivityShare& share : activity_shares()) {
    if (const auto& value = estimate.activity.*share.member) out[at] = value->value();
    ++at;
  }
  return out;
}

}  // namespace

bool HeldClock::follow(const Estimate& estimate, bool ours) {
  if (!estimate.sm_clock) return false;
  // Long after the last request it is the GPU that moves it, under its power limit: a look is then
  // of the mean.
  const double apart = clock > Megahertz(0) ? std::abs(std::log(*estimate.sm_clock / clock)) : 1;
  if (apart < (ours ? kOneClock : kWobble)) return false;
  clock = *estimate.sm_clock;
  since = clock_since = estimate.time;
  return true;
}

void SensorWindow::begin(Instant now, Duration settle) {
  began = now;
  counters = power = settle;
  peak = peak_power = 0;
}

bool SensorWindow::rises(const Estimate& estimate) {
  const double watts = estimate.power.value_or(Watts(0)).value();
  if (watts > 1.1 * peak_power) {
    peak_power = watts;
    power = estimate.time - began;
  }
  const double now = estimate.gpu_utilisation->value();
  if (now <= 1.1 * peak + 0.03) return false;
  peak = now;
  counters = estimate.time - began;
  return true;
}

Duration SensorWindow::counters_settled(Duration settle, std::optional<Duration> interval,
                                        double tick) const {
  if (!interval) return settle;
  const Duration seen = std::min(counters + kAfterWindow, settle);
  if (seconds(*interval) <= Renewal::kQuick * tick) return seen;
  // A renewal shows the time before it: the first one after a whole window is the first of the new
  // clock. The rise at the job's start took an interval, too, unless the window is longer.
  return std::max(counters, *interval) + *interval + kAfterWindow;
}
Duration SensorWindow::power_settled(Duration settle) const {
  return std::min(power + kAfterWindow, settle);
}

void Gathered::take(const ReadingTick& tick, std::size_t most_held_back, Megahertz highest) {
  held_back.push_back(tick);
  for (; held_back.size() > most_held_back; held_back.pop_front()) {
    look.add(held_back.front(), highest);
    ticks.push_back(held_back.front());
  }
}

void Gathered::take_back(std::size_t doubtful, Megahertz highest) {
  const std::size_t doubted = doubtful - std::min(doubtful, held_back.size());
  ticks.resize(ticks.size() - std::min(ticks.size(), doubted));
  look.clear();
  for (const ReadingTick& tick : ticks) look.add(tick, highest);
}

ReadingBatch Gathered::all(Megahertz highest) const {
  ReadingBatch out = look;
  for (const ReadingTick& tick : held_back) out.add(tick, highest);
  return out;
}

bool Gathered::parts_from_last(const ReadingTick& tick) const {
  const ReadingTick* before = !held_back.empty() ? &held_back.back()
                              : !ticks.empty()   ? &ticks.back()
                                                 : nullptr;
  if (before == nullptr) return false;
  bool apart = tick.power && before->power &&
               std::abs(std::log(*tick.power / *before->power)) > kPartedPower;
  for (const Signal signal : {Signal::memory, Signal::dram}) {
    const auto& now = tick.signals[static_cast<std::size_t>(signal)];
    const auto& then = before->signals[static_cast<std::size_t>(signal)];
    apart |= now && then && std::abs(*now - *then) > kPartedMemory;
  }
  return apart;
}

void Gathered::clear() {
  look.clear();
  ticks.clear();
}

void Gathered::drop() {
  clear();
  held_back.clear();
}

bool Voice::hear(const Estimate& estimate, const HeldClock& held) {
  const std::optional<Progress>& newest = estimate.work.progress;
  const bool fresh = newest && estimate.time - newest->time <= kSeldom;
  told = fresh && newest->source == ProgressSource::launches;
  const bool another = newest != beats.last();
  beat = beats.rate(newest, told ? held.clock_since : held.since);
  hears = fresh && beats.interval() <= kSeldom;
  return another;
}

std::optional<std::string> Voice::leaves(const Estimate& estimate) {
  if (!told || phase == estimate.work.phase) return std::nullopt;
  return std::exchange(phase, estimate.work.phase);
}

void Counters::moved() {
  has_moved = true;
  renewals = 0;
  utilisation.moved();
  activity.moved();
}

std::optional<Duration> Counters::interval() const {
  return activity.shows() ? activity_renewal.interval() : utilisation_renewal.interval();
}

Counters::Standing Counters::stand(const Estimate& estimate, bool hears) {
  const SourceReading usage = utilisation_of(estimate), active = activity_of(estimate);
  (void)utilisation.add(estimate.time, usage);
  (void)activity.add(estimate.time, active);
  const bool by_usage = utilisation_renewal.add(estimate.time, usage);
  const bool by_activity = activity_renewal.add(estimate.time, active);
  renewed = activity.shows() ? by_activity : by_usage;
  if (!std::exchange(has_moved, false) && renewed) ++renewals;
  const bool none = utilisation.stands() && (activity.stands() || !activity.shows());
  const bool stands = none && !hears;
  const bool stood_before = std::exchange(stood, stands);
  return {stands, stands && !stood_before};
}

void Counters::read(const Estimate& estimate, Megahertz highest) {
  newest = read_signals(estimate, highest);
  for (std::size_t i = 0; i < kSignals; ++i) {
    const bool of_utilisation = static_cast<Signal>(i) == Signal::memory;
    if ((of_utilisation ? utilisation : activity).stands()) newest[i].reset();
  }
}

bool MeanPowerMeter::see(Instant now, Joules energy) {
  const auto verdict = watch.judge(energy, now);
  counter = verdict != CounterWatch::Verdict::still;
  if (!counter) last.reset();
  return verdict == CounterWatch::Verdict::moved;
}

std::optional<MeanPowerMeter::Mean> MeanPowerMeter::mean(Instant now, Joules energy) {
  std::optional<Mean> out;
  if (last) {
    const double span = seconds(now - last->time);
    if (span < 1) return std::nullopt;
    // The counter moves every 0.1 s.
    out = {(energy - last->energy) / from_seconds(span),
           0.003 * 0.003 + 0.1 * 0.1 / 3 / (span * span)};
  }
  last = {now, energy};
  return out;
}

void WorkReadings::begin(const Estimate& estimate, Duration settle, bool in_its_midst) {
  held.since = estimate.time;
  // In the midst of work no readings rise that tell the sensors' window: what is known of it stays.
  if (!in_its_midst || window.counters <= Duration{}) window.begin(estimate.time, settle);
  gathered.drop();
  meter.last.reset();
  counters.utilisation.begin();
  counters.activity.begin();
  voice.late = Voice::Late::none;
  voice.phase = estimate.work.phase;
}

void WorkReadings::clear() {
  gathered.drop();
  meter.last.reset();
}

Duration WorkReadings::shows_after(const AssureOptions& options) const {
  const auto interval = counters.interval();
  const bool slow = interval && seconds(*interval) > Renewal::kQuick * options.tick;
  return slow ? 2 * *interval : window.counters;
}

// Of two renewals after the change the second one lay behind it, unless the window is longer.
bool WorkReadings::counters_show(Instant now, const AssureOptions& options) const {
  const Duration settled =
      window.counters_settled(options.settle, counters.interval(), options.tick);
  if (now - held.since >= settled) return true;
  const auto interval = counters.interval();
  return interval && seconds(*interval) > Renewal::kQuick * options.tick &&
         window.counters <= 2 * *interval && counters.renewals >= 2;
}

ReadingTick WorkReadings::tick(const Estimate& estimate, Duration settle, bool of_this_phase,
                               bool speaks) {
  // Work that speaks for itself is not judged by counters; that it changes they show all the same.
  if (speaks) counters.newest = {};
  if (voice.hears) counters.newest[static_cast<std::size_t>(Signal::beat)] = voice.beat;
  ReadingTick out{
      .signals = counters.newest, .clock = estimate.sm_clock->value(), .heard = voice.hears};
  if (of_this_phase && *estimate.gpu_utilisation > Fraction(0))
    out.gpu_utilisation = estimate.gpu_utilisation->value();
  out.may_wait = estimate.work.may_wait;
  out.launched = voice.told;
  out.capped = (estimate.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0;
  if (estimate.power && estimate.time - held.since >= window.power_settled(settle))
    out.power = estimate.power->value();
  return out;
}

std::size_t WorkReadings::doubtful(double tick_s) const {
  if (voice.told) return 1;  // a window's last part, which its kernels do not show
  return 2 + static_cast<std::size_t>(seconds(window.counters) / tick_s);
}

bool WorkReadings::awaits_beat(const std::optional<WorkPhase>& phase) const {
  return (phase ? speaks(*phase) : voice.hears) && gathered.beats().count() == 0;
}

bool WorkReadings::enough(std::span<const Signal> signals, double relative_sd) const {
  return std::all_of(signals.begin(), signals.end(), [&](Signal signal) {
    const Readings& of = gathered.look.of(signal);
    return of.count() == 0 || gathered.look.relative_variance(signal) <= relative_sd * relative_sd;
  });
}

}  // namespace derate
