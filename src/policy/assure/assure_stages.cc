// Decisions of `assure` about the clock, stage by stage: reference, look, recognise and steady.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/saving.h"
#include "policy/assure/assure_policy.h"

namespace derate {
namespace {

// Relative sd to which readings are averaged: a job's first at the highest clock, and all others
// before they are learned from.
constexpr double kFirstEnough = 0.02, kBatchEnough = 0.02;
constexpr double kBeatsEnough = 0.002;  // ... and beats at the highest clock
constexpr double kNear = 0.03;          // a clock so little lower is worth no hurry
constexpr Duration kNearAfter = std::chrono::seconds(8);
constexpr double kMoreUnsteady = 10;  // launches than was assumed
constexpr double kShort = 0.0005;     // of the promise, for now: no reason to change the clock
constexpr Duration kLeastReference = std::chrono::seconds(1);  // of readings, behind the window
// Another tool may hold a clock for longer; the switch took up to 0.5 s on GPUs that were measured.
constexpr Duration kHighestComes = std::chrono::seconds(12);
constexpr Duration kSafeAfter = std::chrono::seconds(2);  // of work that nothing is known of
constexpr Duration kUnreadAfter = std::chrono::milliseconds(500);  // then a low clock is left
constexpr Duration kOtherWorkAfter = std::chrono::seconds(2);      // then old measurements go
constexpr Duration kMixedBatch = std::chrono::seconds(4);
constexpr Duration kLookBeforeRefresh = std::chrono::seconds(3);
// Visits to the highest clock at most, and the share of the time on top of that. Heartbeats that
// come each second take longer to read.
constexpr Duration kFreeReference = std::chrono::seconds(3), kFreeOfBeats = std::chrono::seconds(6);
constexpr double kReferenceShare = 0.01;

}  // namespace

Decision Assure::ask(Megahertz clock, bool probing, Reason reason) {
  // What follows is of another clock, however near.
  if (script_.request(clock, probing)) readings_.held.clock = {};
  Decision out = Decision::set(clock, reason);
  out.probing = probing;
  out.expected_performance = expected();
  return out;
}

// What was asked last goes on.
Decision Assure::hold(Reason reason) const {
  Decision out = Decision::hold(reason);
  out.expected_performance = expected();
  return out;
}

// Performance at the clock that was asked for, relative to the highest.
std::optional<Fraction> Assure::expected() const {
  if (!belief_.phase) return std::nullopt;
  const double x = options_.position(script_.asked.clock);
  return Fraction(std::min(1.0, std::exp(belief_.phase->performance(x).mean)));
}

// The log of performance to keep now.
double Assure::promised(const Outlook& outlook) {
  const bool exact =
      readings_.voice.told && speaks(*belief_.phase) && belief_.tenants <= 1 && !watch_.restless;
  if (chooser_.is_clear()) {
    chooser_.shared.reset();
    if (exact && account_.saves_up && !options_.dry_run)
      chooser_.shared = share_of_loss(outlook, 1 / (1 - account_.delta - account_.spare()));
  }
  if (!chooser_.shared) return account_.promised(account_.earned(options_.dry_run));
  // The share is that of a clock, which must not fail it by a rounding.
  return account_.promised_of(*chooser_.shared - kShort, belief_.phase->visits.left(*script_.last));
}

// Work lasts about as long again as it has lasted.
bool Assure::refresh_pays(const Estimate& estimate, const Outlook& outlook) {
  const Megahertz asked = script_.asked.clock;
  const bool between = asked > outlook.envelope.lowest() && asked < outlook.envelope.highest();
  const Duration window = readings_.window.counters;
  if (!between || watch_.restless ||
      estimate.time - readings_.held.since < window + kLookBeforeRefresh)
    return false;
  const WorkPhase& phase = *belief_.phase;
  const Duration age = phase.visits.age(estimate.time);
  const Duration free =
      speaks(phase) && !phase.curves.launches.moves ? kFreeOfBeats : kFreeReference;
  if (phase.visits.referred > free + from_seconds(seconds(age) * kReferenceShare)) return false;
  const ReadingBatch& read = readings_.gathered.look;
  double readings = kFewest;
  for (const Signal signal : phase.curves.signals)
    if (read.of(signal).count() > 0)
      readings = std::max(readings, read.readings_needed(signal, kEnough));
  const double takes_s =
      seconds(window) + std::min(readings * options_.tick, seconds(options_.reference));
  return chooser_.refresh_pays(outlook, asked, account_.promised(account_.earned(options_.dry_run)),
                               {takes_s, seconds(age) + seconds(kShortestJob)});
}

// Whether the highest clock runs, or the driver says that the power limit holds it.
bool Assure::runs_highest(const Estimate& estimate, const Envelope& envelope) const {
  const bool limited = (estimate.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0;
  const double highest = options_.position(envelope.highest());
  return limited || options_.position(readings_.held.clock) < highest + kAtReference;
}

// A higher clock than the phase's reference ran: what was learned is relative to the wrong one.
bool Assure::is_void() const {
  const ReadingBatch& read = readings_.gathered.look;
  return belief_.phase && read.clock.count() >= kFewest &&
         belief_.phase->reference.is_voided_by(read.x);
}

Decision Assure::refer_anew(const Estimate& estimate, const Envelope& envelope) {
  account_.work->forfeit();
  account_.pending.add(belief_.phase->spent);
  belief_.phase.reset();
  chooser_.clear();
  readings_.gathered.drop();
  script_.enter(Stage::reference, estimate.time);
  return refer(estimate, envelope);
}

Decision Assure::refer(const Estimate& estimate, const Envelope& envelope) {
  const ReadingBatch& read = readings_.gathered.look;
  const Voice& voice = readings_.voice;
  const SensorWindow& window = readings_.window;
  const bool proven = runs_highest(estimate, envelope);
  const bool waited = estimate.time - script_.since >= kHighestComes;
  const bool there = read.clock.count() >= kFewest && (proven || waited);
  if (!belief_.phase && there && !watch_.mixed && resume(estimate)) {
    flush();
    script_.stage = Stage::steady;
    return steady(estimate, envelope);
  }
  const Duration longest = (watch_.mixed ? kMixedBatch : options_.reference) + voice.wait();
  const double wanted = voice.hears ? kBeatsEnough : belief_.phase ? kEnough : kFirstEnough;
  const bool known = !watch_.mixed && enough(wanted);
  const bool spent = watch_.alarms.size() > 1 &&
                     account_.probed >= account_.budget(estimate.time - window.began, voice.told);
  const bool over =
      spent || estimate.time - script_.since >=
                   std::max(longest, readings_.shows_after(options_) + kLeastReference);
  if (!there || (!known && !over))
    return ask(envelope.highest(), true,
               {"learning what {0:.0f} MHz gives: {1:.0f} readings",
                {envelope.highest().value(), static_cast<double>(read.clock.count())}});
  const bool first = !belief_.phase;
  if (first) make_phase(estimate, proven);
  belief_.phase->visits.referred += estimate.time - script_.since;
  flush();
  script_.enter(Stage::steady, estimate.time);
  return steady(estimate, envelope);
}

// A phase that was not seen at a low clock is looked at there, once: as soon as the account allows
// for it, and while the highest clock is held, which is when nothing else is known.
bool Assure::may_look(const Estimate& estimate, const Envelope& envelope) const {
  const WorkPhase& phase = *belief_.phase;
  if (phase.visits.looked || phase.visits.returned || phase.reference.unproven) return false;
  if (script_.asked.clock < envelope.highest()) return false;
  return !watch_.mixed && !watch_.restless && !watch_.phases_take_turns() &&
         may_probe(estimate.time) && account_.saves_up && !phase.curves.signals.empty() &&
         account_.may_look() &&
         belief_.lower_bound(options_.position(envelope.lowest())) < std::log(1 - account_.delta);
}

void Assure::make_phase(const Estimate& estimate, bool proven) {
  belief_.make(readings_.gathered.look, options_.highest, estimate.work.phase, script_.since);
  belief_.phase->reference.unproven = !proven;
  chooser_.clear();
  Voice::Late& late = readings_.voice.late;
  if (late == Voice::Late::awaited && !speaks(*belief_.phase)) late = Voice::Late::missed;
  belief_.phase->spent.add(std::exchange(account_.pending, {}));
  be_known();
}

Decision Assure::look(const Estimate& estimate, const Envelope& envelope) {
  if (is_void()) return refer_anew(estimate, envelope);
  const int count = readings_.gathered.look.clock.count();
  const bool there = count > 0 && readings_.held.clock < options_.highest * 0.99;
  const Duration window = readings_.shows_after(options_);
  const bool over = estimate.time - script_.since >
                    window + std::chrono::milliseconds(1500) + readings_.voice.wait();
  const bool read = count >= kFewest && !readings_.awaits_beat(belief_.phase);
  if ((there && (enough(kBatchEnough) || read)) || over) {
    if (count > 0) flush();
    script_.enter(Stage::steady, estimate.time);
    return steady(estimate, envelope);
  }
  const Megahertz asked = script_.asked.clock;
  const Megahertz clock =
      asked < envelope.highest()
          ? asked
          : probe_clock(envelope, seconds(window + std::chrono::milliseconds(800)),
                        kLookShare * account_.delta * seconds(kShortestJob));
  return ask(clock, true, {"learning what {0:.0f} MHz costs", {clock.value()}});
}

Decision Assure::steady(const Estimate& estimate, const Envelope& envelope) {
  if (is_void()) return refer_anew(estimate, envelope);
  if (may_look(estimate, envelope)) {
    if (readings_.gathered.look.clock.count() > 0) flush();
    belief_.phase->visits.looked = true;
    script_.enter(Stage::look, estimate.time);
    return look(estimate, envelope);
  }
  const int count = readings_.gathered.look.clock.count();
  const Duration held_for = estimate.time - readings_.held.since;
  const bool batch = watch_.mixed ? held_for >= kMixedBatch && count >= kFewest
                                  : enough(kBatchEnough) || (count >= kMostInBatch &&
                                                             !readings_.awaits_beat(belief_.phase));
  if (batch) flush();
  if (belief_.phase->curves.launches.outgrown) {
    belief_.unsteady = belief_.phase->curves.launches.unsteady * kMoreUnsteady;
    return refer_anew(estimate, envelope);
  }
  const Outlook outlook = this->outlook(envelope);
  if (refresh_pays(estimate, outlook)) {
    script_.enter(Stage::reference, estimate.time);
    readings_.gathered.drop();
    return refer(estimate, envelope);
  }
  const double promised = this->promised(outlook);
  const Megahertz wanted = chooser_.best(outlook, promised).clock;
  const Megahertz asked = script_.asked.clock;
  const bool probed = std::exchange(script_.asked.probing, false);
  const bool any = asked > Megahertz(0);
  const bool holds = !probed && any && chooser_.sure_at(asked, outlook) >= promised - kShort;
  const bool near = any && wanted > asked * (1 - kNear);
  const Duration looks =
      readings_.window.counters + std::chrono::seconds(1) + readings_.voice.wait();
  const bool looked =
      near ? estimate.time - script_.asked.at >= kNearAfter : batch || held_for >= looks;
  if (any && holds && wanted < asked && !looked)
    return hold({"measuring {0:.0f} MHz", {asked.value()}});
  if (holds && std::abs(std::log(wanted / asked)) < 0.01)
    return hold({"{0:.0f} MHz: least energy under the promise", {asked.value()}});
  if (asked >= envelope.highest() && awaits_another(estimate.time))
    return ask(envelope.highest(), true,
               {"waiting at {0:.0f} MHz for a phase that is not known", {asked.value()}});
  const Belief at = belief_.phase->performance(options_.position(wanted));
  const double ahead = account_.work->saved_s();
  const char* const text =
      ahead < 0 ? "{0:.0f} MHz: performance {1:.0f} % of the highest clock's, 90 % sure within "
                  "{2:.0f} points; {3:.2f} s behind the promise"
                : "{0:.0f} MHz: performance {1:.0f} % of the highest clock's, 90 % sure within "
                  "{2:.0f} points; {3:.2f} s ahead of the promise";
  return ask(
      wanted, false,
      {text, {wanted.value(), 100 * std::exp(at.mean), kNinety * 100 * at.sd, std::abs(ahead)}});
}

// Nothing that is known fits, or not yet.
Decision Assure::recognise_longer(const Envelope& envelope) {
  const double keeps = 1 - account_.delta - account_.earned(options_.dry_run);
  const Megahertz safe = envelope.clamp(options_.highest * std::clamp(keeps, 0.0, 1.0));
  const Megahertz asked = script_.asked.clock;
  if (from_seconds(belief_.unknown_s) <= kSafeAfter || std::abs(safe / asked - 1) < kOneClock)
    return hold({"phases take turns; holding {0:.0f} MHz", {asked.value()}});
  return ask(safe, false,
             {"no known phase fits: {0:.0f} MHz is safe for any work", {safe.value()}});
}

// Other work than before: what it is shows at the present clock, if that may last so long.
Decision Assure::recognise(const Estimate& estimate, const Envelope& envelope) {
  Gathered& gathered = readings_.gathered;
  const Megahertz held = readings_.held.clock;
  const double at_stake = (1 - held / options_.highest) *
                          seconds(readings_.window.counters + std::chrono::milliseconds(600));
  const bool seen = script_.by_name ||
                    gathered.look.clock.count() + static_cast<int>(gathered.held_back.size()) >= 2;
  if (seen && resume(estimate)) {
    if (script_.by_name && estimate.sm_clock)
      account_.count_late(std::exp(belief_.lower_bound(options_.position(*estimate.sm_clock))),
                          options_.tick);
    if (gathered.look.clock.count() > 0) flush();
    script_.stage = Stage::steady;
    return steady(estimate, envelope);
  }
  // One clock for all: it changes when more is known, not when the work does.
  const bool may_be_known = !seen && belief_.others_known;
  if (watch_.restless && !belief_.known.empty() && (may_be_known || !may_probe(estimate.time)))
    return recognise_longer(envelope);
  if (may_be_known && account_.may_lose(at_stake))
    return Decision::hold({"the work has changed; watching {0:.0f} MHz", {held.value()}});
  script_.enter(Stage::reference, estimate.time);
  gathered.drop();
  return refer(estimate, envelope);
}

// The current work may be new, and its loss at a clock is not known: it gets the highest clock, as
// after a pause. A single failed reading is not new work.
Decision Assure::unread(const Estimate& estimate, const Envelope& envelope) {
  const Duration time = script_.unread_for(estimate.time);
  if (time > kOtherWorkAfter && script_.last) {
    account_.work->forfeit();
    begin_anew();
  }
  const Megahertz held = estimate.requested_clock.value_or(script_.asked.clock);
  if (time < kUnreadAfter || held == Megahertz(0) || held >= envelope.highest())
    return Decision::hold({"no utilisation reading", {}});
  return ask(envelope.highest(), false,
             {"no utilisation reading: {0:.0f} MHz suits any work", {envelope.highest().value()}});
}

Decision Assure::decide(const Estimate& estimate, const Envelope& envelope) {
  if (!estimate.gpu_utilisation) return unread(estimate, envelope);
  if (!is_at_work(estimate)) {
    count_spending(estimate, envelope);
    script_.last = estimate.time;
    return Decision::hold({"no work", {}});
  }
  if (estimate.tenants && *estimate.tenants != std::exchange(belief_.tenants, *estimate.tenants))
    chooser_.clear();
  keep_account(estimate);
  count_spending(estimate, envelope);
  follow_clock(estimate);
  script_.last = estimate.time;
  if (readings_.voice.hear(estimate, readings_.held)) account_.hear_beat();
  find_phase(estimate);
  switch (script_.stage) {
    case Stage::reference:
      return refer(estimate, envelope);
    case Stage::look:
      return look(estimate, envelope);
    case Stage::recognise:
      return recognise(estimate, envelope);
    case Stage::steady:
      break;
  }
  return steady(estimate, envelope);
}

}  // namespace derate
