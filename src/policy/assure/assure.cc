#include "policy/assure/assure.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/assure/assure_policy.h"

namespace derate {
namespace {

constexpr const char* kPriors[] = {"own", "all", "V100-SXM2", "A100-SXM4"};
constexpr const char* kNoYes[] = {"no", "yes"};

constexpr ParamSpec kAssureParams[] = {
    {"delta", ParamSpec::Type::number, "", "loss of performance allowed, over the whole job",
     "0.10", 0, 0.5, false},
    {"confidence", ParamSpec::Type::number, "", "with which the promise is kept", "0.99", 0.5,
     0.9999},
    {"settle", ParamSpec::Type::number, "s",
     "readings so soon after a change of the clock are not used, at most", "3", 0, 10},
    {"reference", ParamSpec::Type::number, "s", "at the highest clock at a job's start, at most",
     "3", 0.2, 600},
    {"tick", ParamSpec::Type::number, "s", "control period", "0.2", 0.01, 10},
    {"prior", ParamSpec::Type::choice, "",
     "whose measured applications are taken as alike: the chip's own (all where it has none), all, "
     "or one chip's",
     "own", 0, 0, true, kPriors},
    {"overstated", ParamSpec::Type::number, "",
     "counters may show so much of their full value too much at low clocks, beside what measured "
     "applications show",
     "0", 0, 0.2},
    {"leave_out", ParamSpec::Type::choice, "",
     "leave the application that runs out of them, by its name: for honest figures", "no", 0, 0,
     true, kNoYes},
};

// Relative sd to which readings are averaged: a job's first at the highest clock, and all others
// before they are learned from.
constexpr double kFirstEnough = 0.02, kBatchEnough = 0.02;
constexpr double kNear = 0.03;  // a clock so little lower is worth no hurry
constexpr Duration kNearAfter = std::chrono::seconds(8);
constexpr double kShort = 0.0005;  // of the promise, for now: no reason to change the clock
constexpr Duration kLeastReference = std::chrono::seconds(1);  // of readings, behind the window
constexpr Duration kNewJobAfter = std::chrono::seconds(2);
constexpr Duration kGap = std::chrono::milliseconds(200);
constexpr Duration kSafeAfter = std::chrono::seconds(2);  // of work that nothing is known of
constexpr Duration kMixedBatch = std::chrono::seconds(4);
constexpr Duration kSettleAfter = std::chrono::hours(1);  // what is believed then, stays

Result<std::unique_ptr<Policy>> create_assure(const PolicySetup& setup) {
  const auto number = [&](const char* name) { return *setup.params.number(name); };
  AssureOptions options;
  options.highest = setup.envelope.highest();
  options.delta = number("delta");
  options.confidence = number("confidence");
  options.tick = number("tick");
  options.overstated = number("overstated");
  options.settle = from_seconds(number("settle"));
  options.reference = from_seconds(number("reference"));
  const std::string prior = kPriors[static_cast<std::size_t>(number("prior"))];
  options.prior = prior == "own" ? setup.chip : prior == "all" ? "" : prior;
  options.leave_out = number("leave_out") > 0;
  options.dry_run = setup.dry_run;
  options.chip = setup.chip;
  options.models = setup.models;
  return std::make_unique<Assure>(options, Account{.work = setup.account, .domain = setup.domain});
}

}  // namespace

Assure::Assure(const AssureOptions& options, Account account)
    : options_(options), account_(std::move(account)), belief_(options) {}

void Assure::begin(const Estimate& estimate) {
  leave_phase();
  for (WorkPhase& phase : belief_.known) settle(phase, options_.dry_run, account_.settled);
  account_.pending.clear();
  belief_.begin(estimate.work.name, options_);
  stage_ = Stage::reference;
  since_ = held_since_ = estimate.time;
  // In the midst of work no readings rise that tell the sensors' window: what is known of it stays.
  if (!std::exchange(anew_, false) || window_ <= Duration{}) {
    began_ = estimate.time;
    window_ = power_window_ = options_.settle;
    peak_ = peak_power_ = 0;
  }
  drop_readings();
  watch_.begin(estimate.time);
  energy_.reset();
  utilisation_still_ = activity_still_ = {};
  asked_ = {};
  account_.begin(estimate, options_);
  late_beats_ = LateBeats::none;
  told_phase_ = estimate.work.phase;
  by_name_ = false;
  held_back_.clear();
}

void Assure::begin_anew() {
  leave_phase();
  last_.reset();
  anew_ = true;
}

// A GPU without kernels; a job begins with the first after a while.
bool Assure::idle(const Estimate& estimate) {
  if (*estimate.gpu_utilisation <= Fraction(0) && !estimate.launching) {
    if (!idle_since_) idle_since_ = estimate.time;
    // Perhaps another job comes: what this one saved is not for that one to spend.
    if (estimate.time - *idle_since_ >= kGap) account_.work->forfeit();
    if (estimate.time - *idle_since_ > kNewJobAfter) {
      leave_phase();
      anew_ = false;
    }
    return true;
  }
  if (!last_ || anew_ || (idle_since_ && estimate.time - *idle_since_ > kNewJobAfter))
    begin(estimate);
  idle_since_.reset();
  return false;
}

// Each tick stands for the time since the one before.
void Assure::count_spending(const Estimate& estimate, const Envelope& envelope) {
  const Duration since = last_ ? estimate.time - *last_ : Duration{};
  if (since > std::chrono::seconds(2) || !estimate.sm_clock || !estimate.power) return;
  Spending& to = belief_.phase ? belief_.phase->spent : account_.pending;
  const bool about_there =
      belief_.phase && belief_.phase->limit_allows(options_.position(*estimate.sm_clock));
  derate::count_spending(to, estimate,
                         {.time = since,
                          .asked = asked_,
                          .lowest = envelope.lowest(),
                          .unsaved = idle_since_ || about_there},
                         options_);
  if (to.time() > kSettleAfter && belief_.phase)
    settle(*belief_.phase, options_.dry_run, account_.settled);
}

std::optional<Saving> Assure::saving() const {
  Saving out = account_.settled;
  for (const WorkPhase& phase : belief_.known) out += phase.saving(options_.dry_run);
  if (belief_.phase) out += belief_.phase->saving(options_.dry_run);
  return out;
}

void Assure::keep_account(const Estimate& estimate) {
  account_.take_promise(estimate.work, options_.delta);
  const Duration since = last_ ? estimate.time - *last_ : Duration{};
  if (since > std::chrono::seconds(2) || !estimate.sm_clock) return;
  const double x = options_.position(*estimate.sm_clock);
  const bool known = stage_ != Stage::recognise && belief_.phase;
  account_.count(std::exp(known ? belief_.lower_bound(x) : -x), since);
  if (probing_ || stage_ == Stage::reference) account_.probed += since;
  belief_.count_work(known, x, seconds(since), *last_);
}

// Under the power limit the rate at the highest clock changes as the chip warms. The curve's own
// level would not do for it: it gives way a little where the form of the curve does not fit.
void Assure::count_measured() {
  const bool speaks_alone = belief_.phase && speaks(*belief_.phase) && belief_.tenants <= 1;
  if (!beat_ || !speaks_alone || stage_ == Stage::recognise || belief_.phase->reference_capped)
    return;
  account_.count_measured(*beat_, belief_.phase->reference_rate.rate(), belief_.z);
}

Decision Assure::ask(Megahertz clock, bool probing, Reason reason) {
  if (clock != asked_) {
    held_ = {};  // what follows is of another clock, however near
    asked_at_ = last_.value_or(Instant{});
  }
  asked_ = clock;
  probing_ = probing;
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
  return Fraction(
      std::min(1.0, std::exp(belief_.phase->performance(options_.position(asked_)).mean)));
}

Decision Assure::refer(const Estimate& estimate, const Envelope& envelope) {
  const int count = look_.clock.count();
  const bool there = count >= kFewest;
  if (!belief_.phase && there && !watch_.mixed && resume(estimate)) {
    flush();
    stage_ = Stage::steady;
    return steady(estimate, envelope);
  }
  const Duration longest = (watch_.mixed ? kMixedBatch : options_.reference) + beats_wait();
  const bool known = !watch_.mixed && enough(hears_          ? 0.002
                                             : belief_.phase ? kEnough
                                                             : kFirstEnough);
  const bool spent =
      watch_.alarms.size() > 1 && account_.probed >= account_.budget(estimate.time - began_, told_);
  const bool over = spent || estimate.time - since_ >= std::max(longest, window_ + kLeastReference);
  if (!there || (!known && !over))
    return ask(envelope.highest(), true,
               {"learning what {0:.0f} MHz gives: {1:.0f} readings",
                {envelope.highest().value(), static_cast<double>(count)}});
  const bool first = !belief_.phase;
  if (first) {
    belief_.make(look_, options_.highest, estimate.work.phase, since_);
    prospects_.clear();
    if (late_beats_ == LateBeats::awaited && !speaks(*belief_.phase))
      late_beats_ = LateBeats::missed;
    belief_.phase->spent.add(std::exchange(account_.pending, {}));
    be_known();
  }
  belief_.phase->referred += estimate.time - since_;
  flush();
  since_ = estimate.time;
  const bool may_look =
      first && !watch_.mixed && !watch_.restless && !watch_.phases_take_turns() &&
      may_probe(estimate.time) && account_.saves_up && !belief_.phase->signals.empty() &&
      account_.may_look() &&
      belief_.lower_bound(options_.position(envelope.lowest())) < std::log(1 - account_.delta);
  stage_ = may_look ? Stage::look : Stage::steady;
  return may_look ? look(estimate, envelope) : steady(estimate, envelope);
}

Decision Assure::look(const Estimate& estimate, const Envelope& envelope) {
  const bool there = look_.clock.count() > 0 && held_ < options_.highest * 0.99;
  const bool over =
      estimate.time - since_ > window_ + std::chrono::milliseconds(1500) + beats_wait();
  const bool read = look_.clock.count() >= kFewest && !awaits_beat();
  if ((there && (enough(kBatchEnough) || read)) || over) {
    if (look_.clock.count() > 0) flush();
    stage_ = Stage::steady;
    since_ = estimate.time;
    return steady(estimate, envelope);
  }
  const Megahertz clock = asked_ < envelope.highest() ? asked_ : probe_clock(envelope);
  return ask(clock, true, {"learning what {0:.0f} MHz costs", {clock.value()}});
}

Decision Assure::steady(const Estimate& estimate, const Envelope& envelope) {
  const bool batch =
      watch_.mixed
          ? estimate.time - held_since_ >= kMixedBatch && look_.clock.count() >= kFewest
          : enough(kBatchEnough) || (look_.clock.count() >= kMostInBatch && !awaits_beat());
  if (batch) flush();
  if (refresh_pays(estimate, envelope)) {
    stage_ = Stage::reference;
    since_ = estimate.time;
    drop_readings();
    return refer(estimate, envelope);
  }
  const double promised = this->promised(envelope);
  const Megahertz wanted = best(envelope, promised).clock;
  const bool probed = std::exchange(probing_, false);
  const bool holds = !probed && asked_ > Megahertz(0) && sure_at(asked_) >= promised - kShort;
  const bool near = asked_ > Megahertz(0) && wanted > asked_ * (1 - kNear);
  const Duration looks = window_ + std::chrono::seconds(1) + beats_wait();
  const bool looked = near ? estimate.time - asked_at_ >= kNearAfter
                           : batch || estimate.time - held_since_ >= looks;
  if (asked_ > Megahertz(0) && holds && wanted < asked_ && !looked)
    return hold({"looking at {0:.0f} MHz", {asked_.value()}});
  if (holds && std::abs(std::log(wanted / asked_)) < 0.01)
    return hold({"{0:.0f} MHz keeps the promise", {asked_.value()}});
  if (asked_ >= envelope.highest() && awaits_another(estimate.time))
    return ask(envelope.highest(), true,
               {"waiting at {0:.0f} MHz for a phase that is not known", {asked_.value()}});
  const Belief at = belief_.phase->performance(options_.position(wanted));
  return ask(wanted, false,
             {"{0:.0f} MHz: performance {1:.1f} % of the highest clock's, +- {2:.1f}; earned "
              "{3:.2f} s",
              {wanted.value(), 100 * std::exp(at.mean), 100 * at.sd, account_.work->saved_s()}});
}

// Nothing that is known fits, or not yet.
Decision Assure::recognise_longer(const Envelope& envelope) {
  const Megahertz safe =
      envelope.clamp(options_.highest * std::clamp(1 - account_.delta - earned(), 0.0, 1.0));
  if (from_seconds(belief_.unknown_s) <= kSafeAfter || std::abs(safe / asked_ - 1) < kOneClock)
    return hold({"phases take turns; holding {0:.0f} MHz", {asked_.value()}});
  return ask(safe, false,
             {"no known phase fits: {0:.0f} MHz is safe for any work", {safe.value()}});
}

// Other work than before: what it is shows at the present clock, if that may last so long.
Decision Assure::recognise(const Estimate& estimate, const Envelope& envelope) {
  const double at_stake = (1 - held_ / options_.highest) * seconds(window_ + from_seconds(0.6));
  const bool may = account_.may_lose(at_stake);
  const bool seen = by_name_ || look_.clock.count() + static_cast<int>(held_back_.size()) >= 2;
  if (seen && resume(estimate)) {
    if (by_name_) count_late(estimate);
    if (look_.clock.count() > 0) flush();
    stage_ = Stage::steady;
    return steady(estimate, envelope);
  }
  // One clock for all: it changes when more is known, not when the work does.
  const bool may_be_known = !seen && belief_.others_known;
  if (watch_.restless && !belief_.known.empty() && (may_be_known || !may_probe(estimate.time)))
    return recognise_longer(envelope);
  if (may_be_known && may)
    return Decision::hold({"the work has changed; watching {0:.0f} MHz", {held_.value()}});
  stage_ = Stage::reference;
  since_ = estimate.time;
  drop_readings();
  return refer(estimate, envelope);
}

Decision Assure::decide(const Estimate& estimate, const Envelope& envelope) {
  if (!estimate.gpu_utilisation) return Decision::hold({"no utilisation reading", {}});
  if (idle(estimate)) {
    count_spending(estimate, envelope);
    last_ = estimate.time;
    return Decision::hold({"no work", {}});
  }
  if (estimate.tenants && *estimate.tenants != std::exchange(belief_.tenants, *estimate.tenants))
    prospects_.clear();
  keep_account(estimate);
  count_spending(estimate, envelope);
  follow_clock(estimate);
  last_ = estimate.time;
  hear(estimate);
  // Launches tell at once that another phase has begun, whatever is being done.
  const std::string before = told_ ? std::exchange(told_phase_, estimate.work.phase) : told_phase_;
  if (before != told_phase_) {
    alarm(estimate, before);
    by_name_ = true;
  }
  watch_.rest(estimate.time);
  count_measured();
  take(estimate);
  learn_power(estimate);
  if (stage_ == Stage::steady ? changed(estimate) : watch_.jumped) {
    alarm(estimate, estimate.work.phase);
    by_name_ = false;
  } else if (begins_to_speak())
    learn_by_beats(estimate);
  switch (stage_) {
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

PolicyInfo assure_info() {
  return {"assure",
          "keep the promise with a stated confidence, at the lowest clock that does",
          "Learns how progress follows the clock from few readings and a prior that measured "
          "applications gave, with its uncertainty; takes the clock of least energy that keeps the "
          "promise surely enough, counts what was earned and lost over the whole job, knows phases "
          "again that return, and looks at the highest clock only when it must.",
          false,
          kAssureParams,
          create_assure,
          PolicyInfo::Promise::delta,
          true};
}

}  // namespace derate
