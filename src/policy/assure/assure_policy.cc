#include "policy/assure/assure_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/assure/assure_forecast.h"

namespace derate {
namespace {

constexpr Duration kSettleAfter = std::chrono::hours(1);  // what is believed then, stays
constexpr double kPowerReading = 0.03;                    // relative sd of a few readings' mean
// A clock that comes later is held back by another tool, heat or a limit: without this policy, too.
constexpr Duration kSwitchesIn = std::chrono::seconds(3);
constexpr int kFewestTold = 2;  // readings

}  // namespace

Assure::Assure(const AssureOptions& options, Account account)
    : options_(options), belief_(options), account_(std::move(account)) {}

void Assure::begin(const Estimate& estimate) {
  leave_phase();
  for (WorkPhase& phase : belief_.known) belief_.settle(phase, options_, account_.settled);
  account_.pending.clear();
  belief_.begin(estimate.work.name, options_);
  script_.enter(Stage::reference, estimate.time);
  script_.asked.clock = {};
  script_.by_name = false;
  readings_.begin(estimate, options_.settle, std::exchange(script_.anew, false));
  watch_.begin(estimate.time);
  account_.begin(estimate, options_);
}

void Assure::begin_anew() {
  leave_phase();
  script_.last.reset();
  script_.anew = true;
}

bool Assure::is_at_work(const Estimate& estimate) {
  switch (script_.work_at(estimate)) {
    case Script::Work::has_ended:
      account_.work->forfeit();
      leave_phase();
      return false;
    case Script::Work::rests:
      // Perhaps another job comes: what this one saved is not for that one to spend.
      account_.work->forfeit();
      return false;
    case Script::Work::pauses:
      return false;
    case Script::Work::begins:
      begin(estimate);
      return true;
    case Script::Work::goes_on:
      break;
  }
  return true;
}

void Assure::count_spending(const Estimate& estimate, const Envelope& envelope) {
  const auto time = script_.time_of_tick(estimate.time);
  if (!time || !estimate.sm_clock || !estimate.power) return;
  if (options_.dry_run) belief_.allowed = {account_.delta, envelope};
  Spending& to = belief_.phase ? belief_.phase->spent : account_.pending;
  const bool about_there =
      belief_.phase && belief_.phase->reference.limit_allows(options_.position(*estimate.sm_clock));
  derate::count_spending(to, estimate,
                         {.time = *time,
                          .asked = script_.asked.clock,
                          .lowest = envelope.lowest(),
                          .unsaved = script_.idle_since || about_there},
                         options_);
  if (to.time() > kSettleAfter && belief_.phase)
    belief_.settle(*belief_.phase, options_, account_.settled);
}

std::optional<Saving> Assure::saving() const {
  Saving out = account_.settled;
  for (const WorkPhase& phase : belief_.known) out += belief_.saving_of(phase, options_);
  if (belief_.phase) out += belief_.saving_of(*belief_.phase, options_);
  return out;
}

std::vector<ForecastPoint> Assure::forecast(const Envelope& envelope) const {
  if (!belief_.phase || !script_.last) return {};
  return forecast_points(outlook(envelope));
}

std::optional<Megahertz> Assure::would_hold(double delta, const Envelope& envelope) const {
  if (!belief_.phase || !script_.last) return std::nullopt;
  const double promised = std::log(1 - delta);
  const Outlook now = outlook(envelope);
  return watch_.restless ? best_of(prospects_of_mixture(now), promised).clock
                         : will_hold(promised, now);
}

// Whether the driver has accepted a request for the highest clock, and a lower one runs.
bool Assure::awaits_highest(const Estimate& estimate) const {
  const auto near = [&](Megahertz clock) { return options_.position(clock) < kAtReference; };
  return script_.stage == Stage::reference && near(script_.asked.clock) && estimate.sm_clock &&
         !near(*estimate.sm_clock) && near(estimate.requested_clock.value_or(Megahertz(0)));
}

void Assure::keep_account(const Estimate& estimate) {
  account_.take_promise(estimate.work, options_.delta);
  const auto time = script_.time_of_tick(estimate.time);
  if (!time || !estimate.sm_clock) return;
  const double x = options_.position(*estimate.sm_clock);
  const bool known = script_.stage != Stage::recognise && belief_.phase;
  const bool waits = awaits_highest(estimate);
  const bool by_others = waits && script_.asked_for(estimate.time) > kSwitchesIn;
  account_.count(by_others ? 1 : std::exp(known ? belief_.lower_bound(x) : -x), *time);
  const bool probes = script_.asked.probing || script_.stage == Stage::reference;
  if (probes && !waits) account_.probed += *time;
  belief_.count_work(known, x, seconds(*time), script_.last.value_or(Instant{}));
}

// Under the power limit the rate at the highest clock changes as the chip warms. The curve's own
// level would not do for it: it gives way a little where the form of the curve does not fit.
void Assure::count_measured() {
  const auto& phase = belief_.phase;
  const bool speaks_alone = phase && speaks(*phase) && belief_.tenants <= 1;
  if (!readings_.voice.beat || !speaks_alone || script_.stage == Stage::recognise ||
      phase->reference.capped)
    return;
  const PhaseCurves& curves = phase->curves;
  Belief at_highest = phase->reference.rate.rate();
  if (curves.launches.moves) {
    at_highest.mean += curves.launches.moved;
    at_highest.sd = std::max(at_highest.sd, curves.progress.reading(0, phase->reference.x).sd);
  }
  account_.count_measured(*readings_.voice.beat, at_highest, belief_.z);
}

void Assure::follow_clock(const Estimate& estimate) {
  // The clock that was requested may come late.
  const Megahertz asked = script_.asked.clock;
  const bool comes = estimate.sm_clock && asked > Megahertz(0) &&
                     std::abs(std::log(*estimate.sm_clock / asked)) < kOneClock;
  const bool ours = estimate.time - script_.asked.at < options_.settle || comes;
  if (!readings_.held.follow(estimate, ours)) return;
  readings_.counters.moved();
  readings_.clear();
  watch_.jumps.clear();
}

void Assure::take(const Estimate& estimate) {
  Counters& counters = readings_.counters;
  Gathered& gathered = readings_.gathered;
  SensorWindow& window = readings_.window;
  counters.newest = {};
  watch_.jumped = false;
  if (!estimate.sm_clock) return;
  const Counters::Standing standing = counters.stand(estimate, readings_.voice.hears);
  if (standing.began) gathered.drop();  // the last of it stood already
  // What rises after it rested is other work.
  const bool starting = script_.stage == Stage::reference && !belief_.phase && !watch_.mixed &&
                        gathered.has_few() && estimate.time - window.began < options_.settle;
  HeldClock& held = readings_.held;
  if (starting && window.rises(estimate)) {
    // A clock may have come later.
    held.since = std::max(held.since, estimate.time - window.counters);
    gathered.drop();
    watch_.jumps.clear();
    return;
  }
  const Duration settled =
      window.counters_settled(options_.settle, counters.interval(), options_.tick);
  const bool counters_settled = readings_.counters_show(estimate.time, options_);
  // A window of launches is of its phase from the beginning.
  const bool told = readings_.voice.told;
  if (!counters_settled && !(told && estimate.time - held.clock_since >= settled)) return;
  if (standing.stands || (!counters.renewed && !readings_.voice.hears)) {
    watch_.jumped = !watch_.mixed && watch_.jumps.add_power(estimate);
    return;
  }
  counters.read(estimate, options_.highest);
  watch_.jumped = !watch_.mixed && !told && watch_.jumps.add(estimate, counters.newest);
  const bool speaks_itself = belief_.phase && speaks(*belief_.phase);
  const ReadingTick tick =
      readings_.tick(estimate, options_.settle, counters_settled, speaks_itself);
  if (is_of_other_work(tick)) gathered.drop();
  gathered.take(tick, watch_.restless ? readings_.doubtful(options_.tick) : 0, options_.highest);
}

// At the reference, before anything is known: too few readings for the watch to tell two phases
// apart would make one that is neither. Only once a visit: work whose power never rests has one
// phase all the same.
bool Assure::is_of_other_work(const ReadingTick& tick) {
  const Gathered& gathered = readings_.gathered;
  const bool few = gathered.ticks.size() + gathered.held_back.size() < kFewest;
  if (script_.stage != Stage::reference || belief_.phase || script_.since == readings_.parted ||
      !few || !gathered.parts_from_last(tick))
    return false;
  readings_.parted = script_.since;
  return true;
}

void Assure::learn_power(const Estimate& estimate) {
  if (!estimate.energy) return;
  MeanPowerMeter& meter_of = readings_.meter;
  if (!meter_of.see(estimate.time, *estimate.energy)) return;
  const HeldClock& held = readings_.held;
  if (!belief_.phase || estimate.time - held.since < readings_.window.counters) return;
  const auto mean = meter_of.mean(estimate.time, *estimate.energy);
  if (!mean) return;
  const double x = options_.position(held.clock);
  belief_.phase->curves.power.observe(x, mean->power, mean->variance);
  chooser_.clear();
  belief_.phase->curves.meter(estimate.time, x, mean->power, mean->variance);
}

bool Assure::enough(double relative_sd) const {
  const Gathered& gathered = readings_.gathered;
  if (gathered.has_few() || readings_.awaits_beat(belief_.phase)) return false;
  return readings_.enough(
      belief_.phase ? belief_.phase->curves.signals
                    : informative_signals(gathered.look, options_.highest, belief_.priors),
      relative_sd);
}

// Readings that may be another phase's already teach nothing: the watch will tell.
void Assure::flush() {
  chooser_.clear();
  const ReadingBatch& read = readings_.gathered.look;
  WorkPhase& phase = *belief_.phase;
  if (watch_.mixed || phase.curves.counters_fit(read)) {
    learn(phase, read, script_.last.value_or(Instant{}));
    // Means of the power are the energy counter's, where there is one; but a visit to a phase that
    // speaks may be too short for it.
    const bool metered = readings_.meter.counter &&
                         (!speaks(phase) || phase.curves.power.power(read.x).sd <= kPowerReading);
    if (!metered && read.power.count() > 0)
      phase.curves.power.observe(read.x, Watts(read.power.mean()), kPowerReading * kPowerReading);
  }
  readings_.gathered.clear();
}

// Another phase: readings that jump or drift, another name, or beats that end.
bool Assure::has_changed(const Estimate& estimate) {
  if (!belief_.phase || watch_.mixed) return false;
  if (watch_.jumped || estimate.work.phase != belief_.phase->name) return true;
  // What was learned by beats says nothing of counters.
  if (speaks(*belief_.phase) && !readings_.voice.hears) {
    readings_.voice.late = Voice::Late::none;
    return true;
  }
  return watch_.drifts(*belief_.phase, readings_.gathered.look, readings_.counters.newest);
}

void Assure::be_known() {
  if (const auto more = belief_.be_known(*script_.last)) account_.work->credit(*more);
}

bool Assure::may_probe(Instant now) const {
  const SensorWindow& window = readings_.window;
  return account_.may_probe(now - window.began, readings_.voice.told, window.counters);
}

// Phases take turns, and of one of them nothing is known, or little: it is seen best where this one
// was.
bool Assure::awaits_another(Instant now) const {
  if (watch_.mixed || !watch_.phases_take_turns() || !may_probe(now)) return false;
  return belief_.knows_too_little(now, readings_.voice.told);
}

void Assure::leave_phase() {
  Readings& beats = readings_.gathered.beats();
  beats.clear();
  belief_.leave({.now = script_.last,
                 .beats = std::exchange(beats, {}),
                 .mixed = watch_.mixed,
                 .restless = watch_.restless},
                options_, account_.settled);
}

// Takes up a phase that was known before.
bool Assure::resume(const Estimate& estimate) {
  const Voice& voice = readings_.voice;
  const std::size_t found =
      script_.by_name
          ? belief_.find_by_name(estimate.work.phase)
          : belief_.find_by_readings(readings_.gathered.all(options_.highest),
                                     {.name = estimate.work.phase,
                                      .now = estimate.time,
                                      .hears = voice.hears,
                                      .awaits_beats = voice.late == Voice::Late::awaited,
                                      .restless = watch_.restless,
                                      .at_highest = script_.stage == Stage::reference});
  if (found == belief_.known.size()) return false;
  belief_.take_up(found, estimate.time);
  chooser_.clear();
  belief_.phase->spent.add(std::exchange(account_.pending, {}));
  readings_.gathered.beats() = belief_.phase->beats;
  script_.asked.probing = !watch_.restless;  // the present clock was another phase's
  be_known();
  watch_.innovations = {};
  return true;
}

// What was read of a phase before it ended may be all that there is of it.
void Assure::keep_visit(const std::string& left) {
  Gathered& gathered = readings_.gathered;
  gathered.take_back(readings_.doubtful(options_.tick), options_.highest);
  const bool new_one = script_.stage == Stage::reference && !belief_.phase && !watch_.mixed;
  const int fewest = readings_.voice.told ? kFewestTold : kFewest;
  if (new_one && static_cast<int>(gathered.ticks.size()) >= fewest &&
      gathered.look.x < kAtReference) {
    belief_.make(gathered.look, options_.highest, left, script_.since);
    belief_.phase->visits.returned = true;  // however short it was
    be_known();
  }
  const bool read = script_.stage != Stage::recognise && !gathered.ticks.empty();
  if (belief_.phase && watch_.restless && read) flush();
}

// The first beats after the phase was learned by counters: it is learned anew, by them. The work is
// the same, so this is no alarm.
bool Assure::begins_to_speak() const {
  const bool beat = readings_.counters.newest[static_cast<std::size_t>(Signal::beat)].has_value();
  return beat && belief_.phase && !speaks(*belief_.phase) &&
         readings_.voice.late == Voice::Late::none;
}

void Assure::learn_by_beats(const Estimate& estimate) {
  Voice& voice = readings_.voice;
  voice.late = Voice::Late::awaited;
  leave_phase();
  readings_.clear();
  watch_.clear();
  script_.by_name = voice.told;
  const bool resumed = voice.told && resume(estimate);
  script_.enter(resumed ? Stage::steady : Stage::reference, estimate.time);
}

void Assure::alarm(const Estimate& estimate, const std::string& left) {
  keep_visit(left);
  account_.work->end_visit();
  // What did not show what it should, without a jump, was taken for another.
  if (belief_.phase && belief_.phase->visits.returned && !watch_.jumped && !watch_.restless)
    belief_.phase->visits.doubted = estimate.time;
  const std::size_t others = belief_.known.size();
  leave_phase();
  belief_.others_known = watch_.jumped ? others > 0 : !belief_.known.empty();
  belief_.stay_unknown(estimate.time);
  readings_.clear();
  watch_.clear();
  readings_.counters.moved();
  // Two readings raise an alarm: the work changed before the first of them. A window of launches
  // lay in the new phase.
  const bool before = watch_.restless || readings_.voice.told;
  readings_.held.since = estimate.time - (before ? from_seconds(options_.tick) : Duration{});
  watch_.alarm(estimate.time, readings_.window.counters);
  script_.enter(watch_.mixed ? Stage::reference : Stage::recognise, estimate.time);
}

// Launches tell at once that another phase has begun, whatever is being done.
void Assure::find_phase(const Estimate& estimate) {
  if (const auto left = readings_.voice.leaves(estimate)) {
    alarm(estimate, *left);
    script_.by_name = true;
  }
  watch_.rest(estimate.time);
  count_measured();
  take(estimate);
  learn_power(estimate);
  if (script_.stage == Stage::steady ? has_changed(estimate) : watch_.jumped) {
    alarm(estimate, estimate.work.phase);
    script_.by_name = false;
  } else if (begins_to_speak()) {
    learn_by_beats(estimate);
  }
}

}  // namespace derate
