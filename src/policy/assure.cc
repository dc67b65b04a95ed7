#include "policy/assure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "policy/change_watch.h"
#include "policy/work_phase.h"

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
     "readings so soon after a change of the clock are not used, at most", "1.2", 0, 10},
    {"reference", ParamSpec::Type::number, "s", "at the highest clock at a job's start, at most",
     "3", 0.2, 600},
    {"tick", ParamSpec::Type::number, "s", "control period", "0.2", 0.01, 10},
    {"prior", ParamSpec::Type::choice, "",
     "whose measured applications are taken as alike: the chip's own (all where it has none), all, "
     "or one chip's",
     "own", 0, 0, true, kPriors},
    {"leave_out", ParamSpec::Type::choice, "",
     "leave the application that runs out of them, by its name: for honest figures", "no", 0, 0,
     true, kNoYes},
};

constexpr double kEnough = 0.009;      // a level known so well is not looked at any longer
constexpr double kBatchEnough = 0.02;  // readings are averaged to this before they are learned from
constexpr int kFewest = 3, kMostInBatch = 25;
constexpr double kHorizon = 15;  // s over which what was earned or lost is made even
constexpr double kMostEarned = 0.15;
constexpr double kMostSaved = 1.5;  // s
constexpr double kForm = 0.015;     // what a quadratic leaves of a reading, relative, at most
constexpr double kNear = 0.03;      // a clock so little lower is worth no hurry
constexpr Duration kNearAfter = std::chrono::seconds(8);
constexpr double kShort = 0.0005;  // of the promise, for now: no reason to change the clock
constexpr Duration kAfterWindow = std::chrono::milliseconds(150);
constexpr Duration kLookBeforeRefresh = std::chrono::seconds(6);
constexpr Duration kFreeReference = std::chrono::seconds(6);
constexpr double kReferenceShare = 0.015;
constexpr double kWorthRefresh = 0.003;  // of performance
constexpr double kSameEnergy = 0.003;    // of two clocks, the higher
constexpr Duration kNewJobAfter = std::chrono::seconds(2);
constexpr Duration kGap = std::chrono::milliseconds(200);
constexpr Duration kShortestJob = std::chrono::seconds(30);  // whose promise is judged
constexpr double kLookShare = 0.15;  // of what that job may lose, for one look at a low clock
constexpr Duration kNewPhase = std::chrono::seconds(2);  // shorter ones are not remembered
constexpr Duration kDoubtFor = std::chrono::seconds(20);
constexpr std::size_t kMostPhases = 32;
constexpr std::size_t kRestless = 4;  // alarms in
constexpr Duration kRestlessTime = std::chrono::seconds(10);
constexpr Duration kMixedBatch = std::chrono::seconds(4);
constexpr double kPowerReading = 0.03;  // relative sd of a few readings' mean
constexpr double kWobble = 0.5;
constexpr Duration kSettleAfter = std::chrono::hours(1);  // what is believed then, stays
constexpr double kOneClock = 0.03;  // the clock held is one while it stays within this share

// Quantile of the standard normal distribution for probabilities in (0.5, 1): Abramowitz and Stegun
// 26.2.23, error below 4.5e-4.
double normal_quantile(double p) {
  const double t = std::sqrt(-2 * std::log(1 - p));
  return t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                 (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t);
}

struct AssureOptions {
  Megahertz highest{};
  double delta = 0, confidence = 0;
  Duration settle{}, reference{};
  std::string prior;  // a chip of the rows; empty: all
  bool leave_out = false;
  bool dry_run = false;
  std::string chip;
  ModelCache* models = nullptr;
};

class Assure final : public Policy {
 public:
  explicit Assure(const AssureOptions& options)
      : options_(options),
        z_(normal_quantile(options.confidence)),
        priors_(curve_priors(options.prior)) {
    recall();
  }
  Assure(const Assure&) = delete;
  Assure& operator=(const Assure&) = delete;
  // What was learned is kept however governing ends.
  ~Assure() override { leave_phase(); }

  Decision decide(const Estimate& estimate, const Envelope& envelope) override;
  std::optional<Saving> saving() const override;

 private:
  // What it does with the clock: the highest, to know what is promised; a low one, to know what it
  // costs; the one it holds best; and the present one, to find out which work this is.
  enum class Stage { reference, look, steady, recognise };

  // What comes in.
  bool idle(const Estimate& estimate);
  void begin(const Estimate& estimate);
  void keep_account(const Estimate& estimate);
  void count_spending(const Estimate& estimate, const Envelope& envelope);
  void settle(WorkPhase& phase);
  void follow_clock(const Estimate& estimate);
  bool rising(const Estimate& estimate);
  void take(const Estimate& estimate);
  void learn_power(const Estimate& estimate);
  bool changed(const Estimate& estimate);
  void flush();
  bool enough(double relative_sd) const;

  // Phases.
  void recall();
  void leave_phase();
  bool resume(const Estimate& estimate);
  void alarm(const Estimate& estimate);
  void name_priors(const std::string& work);

  // What goes out.
  double position(Megahertz clock) const {
    return std::max(0.0, std::log(options_.highest / clock));
  }
  double earned() const;
  double lower_bound(double x) const;
  bool refresh_pays(const Estimate& estimate, const Envelope& envelope) const;
  Megahertz best(const Envelope& envelope) const;
  Megahertz probe_clock(const Envelope& envelope) const;
  Decision refer(const Estimate& estimate, const Envelope& envelope);
  Decision look(const Estimate& estimate, const Envelope& envelope);
  Decision steady(const Estimate& estimate, const Envelope& envelope);
  Decision recognise(const Estimate& estimate, const Envelope& envelope);
  Decision ask(Megahertz clock, bool probing, Reason reason);
  Decision hold(Reason reason) const;
  std::optional<Fraction> expected() const;

  AssureOptions options_;
  double z_;
  CurvePriors priors_;
  std::string left_out_;
  double delta_ = 0;
  bool every_phase_ = false;

  Stage stage_ = Stage::reference;
  Instant since_{};  // in this stage
  std::optional<Instant> idle_since_, last_;
  Instant began_{};
  Megahertz asked_{};
  Instant asked_at_{};
  bool probing_ = false;  // asked_ is a clock to learn from

  // The clock that the GPU has, and what was read while it had it.
  Megahertz held_{};
  Instant held_since_{};
  // Of the counters and of power, as seen at the job's start, while the readings rise.
  Duration window_{}, power_window_{};
  double peak_ = 0, peak_power_ = 0;
  ReadingBatch look_;
  SignalValues newest_;
  bool jumped_ = false;  // against what was read before at the same clock
  BeatRate beats_;
  std::array<Cusum, kSignals> cusum_{};
  ChangeWatch watch_;
  struct EnergyReading {
    Instant time{};
    Joules energy{};
  };
  std::optional<EnergyReading> energy_;
  bool energy_counter_ = false;

  std::optional<WorkPhase> phase_;
  std::vector<WorkPhase> known_;  // other phases, the newest last
  std::vector<Instant> alarms_;
  bool mixed_ = false;  // phases too short to follow: their mixture is one phase
  double slack_s_ = 0;  // seconds of work done beyond what was promised, at least

  Saving settled_;    // of phases that are closed
  Spending pending_;  // of which phase, the next tells
};

// --- what comes in -------------------------------------------------------------------------------

void Assure::name_priors(const std::string& work) {
  if (!options_.leave_out || work == left_out_) return;
  left_out_ = work;
  priors_ = curve_priors(options_.prior, work);
}

void Assure::begin(const Estimate& estimate) {
  leave_phase();
  for (WorkPhase& phase : known_) settle(phase);
  pending_.clear();
  // Beats count in one job's own units.
  std::erase_if(known_, [](const WorkPhase& phase) { return speaks(phase); });
  name_priors(estimate.work.name);
  stage_ = Stage::reference;
  began_ = since_ = held_since_ = estimate.time;
  window_ = power_window_ = options_.settle;
  peak_ = peak_power_ = 0;
  look_.clear();
  cusum_ = {};
  watch_.clear();
  energy_.reset();
  asked_ = {};
  slack_s_ = 0;
  alarms_.clear();
  mixed_ = false;
}

// A GPU without kernels; a job begins with the first after a while.
bool Assure::idle(const Estimate& estimate) {
  if (*estimate.gpu_utilisation <= Fraction(0)) {
    if (!idle_since_) idle_since_ = estimate.time;
    // Perhaps another job comes: what this one saved is not for that one to spend.
    if (estimate.time - *idle_since_ >= kGap) slack_s_ = std::min(slack_s_, 0.0);
    if (estimate.time - *idle_since_ > kNewJobAfter) leave_phase();
    return true;
  }
  if (!last_ || (idle_since_ && estimate.time - *idle_since_ > kNewJobAfter)) begin(estimate);
  idle_since_.reset();
  return false;
}

void Assure::settle(WorkPhase& phase) {
  settled_ += phase.saving(options_.dry_run);
  phase.spent.clear();
}

// Each tick stands for the time since the one before.
void Assure::count_spending(const Estimate& estimate, const Envelope& envelope) {
  const Duration since = last_ ? estimate.time - *last_ : Duration{};
  if (since > std::chrono::seconds(2) || !estimate.sm_clock || !estimate.power) return;
  const Spent spent{since, *estimate.power * since};
  Spending& to = phase_ ? phase_->spent : pending_;
  // Where the power limit holds the clock below the lock, it would at the highest clock, too.
  const bool limited = (estimate.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0;
  const bool capped = limited && *estimate.sm_clock < asked_ * 0.995;
  // What is read in a dry run is then not of the highest clock, and no curve tells of less.
  if (limited && options_.dry_run) return;
  const bool unsaved =
      idle_since_ || asked_ <= Megahertz(0) || asked_ >= options_.highest * 0.995 || capped;
  if (unsaved)
    to.add_unsaved(spent);
  else
    // A clock below the envelope is the GPU's own doing, as while it wakes up: no curve tells of
    // it.
    to.add(position(std::max(options_.dry_run ? asked_ : *estimate.sm_clock, envelope.lowest())),
           spent);
  if (to.time() > kSettleAfter && phase_) settle(*phase_);
}

std::optional<Saving> Assure::saving() const {
  Saving out = settled_;
  for (const WorkPhase& phase : known_) out += phase.saving(options_.dry_run);
  if (phase_) out += phase_->saving(options_.dry_run);
  return out;
}

void Assure::keep_account(const Estimate& estimate) {
  delta_ = options_.delta;
  if (estimate.work.max_loss) delta_ = std::clamp(estimate.work.max_loss->value(), 0.0, 0.5);
  every_phase_ = estimate.work.every_phase;
  const Duration since = last_ ? estimate.time - *last_ : Duration{};
  if (since > std::chrono::seconds(2) || !estimate.sm_clock) return;
  const double sure = stage_ == Stage::recognise || !phase_
                          ? -position(*estimate.sm_clock)
                          : lower_bound(position(*estimate.sm_clock));
  slack_s_ += (std::exp(sure) - (1 - delta_)) * seconds(since);
  slack_s_ = std::min(slack_s_, kMostSaved);
}

// The clock really held counts, not the one asked for; and whatever moved it.
void Assure::follow_clock(const Estimate& estimate) {
  if (!estimate.sm_clock) return;
  // Long after the last request it is the GPU that moves it, under its power limit: a look is then
  // of the mean.
  const bool ours = estimate.time - asked_at_ < options_.settle;
  const double apart = held_ > Megahertz(0) ? std::abs(std::log(*estimate.sm_clock / held_)) : 1;
  if (apart < (ours ? kOneClock : kWobble)) return;
  held_ = *estimate.sm_clock;
  held_since_ = estimate.time;
  look_.clear();
  watch_.clear();
  energy_.reset();
}

// At a job's start the utilisation rises over the sensors' window: how long it takes is how long a
// change of the clock takes to show. Work that is slow to start makes it seem longer: the safe
// side.
bool Assure::rising(const Estimate& estimate) {
  const double power = estimate.power.value_or(Watts(0)).value();
  if (power > 1.1 * peak_power_) {
    peak_power_ = power;
    power_window_ = estimate.time - began_;
  }
  const double now = estimate.gpu_utilisation->value();
  if (now <= 1.1 * peak_ + 0.03) return false;
  peak_ = now;
  return true;
}

void Assure::take(const Estimate& estimate) {
  newest_ = {};
  jumped_ = false;
  if (!estimate.sm_clock) return;
  const bool starting = stage_ == Stage::reference && !phase_ && !mixed_;
  if (starting && estimate.time - began_ < options_.settle && rising(estimate)) {
    window_ = estimate.time - began_;
    held_since_ = estimate.time - window_;
    look_.clear();
    watch_.clear();
    return;
  }
  const auto beat = beats_.rate(estimate.work.beat, held_since_);
  if (estimate.time - held_since_ < std::min(window_ + kAfterWindow, options_.settle)) return;
  newest_ = read_signals(estimate, options_.highest);
  jumped_ = !mixed_ && watch_.add(estimate, newest_);
  // Work that speaks for itself is not judged by counters; that it changes they show all the same.
  if (estimate.work.beat) newest_ = {};
  newest_[static_cast<std::size_t>(Signal::beat)] = beat;
  for (std::size_t i = 0; i < kSignals; ++i)
    if (newest_[i]) look_.signals[i].add(*newest_[i]);
  look_.capped |= (estimate.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0;
  look_.clock.add(estimate.sm_clock->value());
  look_.x = position(Megahertz(look_.clock.mean()));
  look_.gpu_utilisation.add(estimate.gpu_utilisation->value());
  const Duration power_window = std::min(power_window_ + kAfterWindow, options_.settle);
  if (estimate.power && !estimate.work.beat && estimate.time - held_since_ >= power_window)
    look_.signals[static_cast<std::size_t>(Signal::power)].add(estimate.power->value());
}

// Means from the energy counter, over a second at least; where there is none, flush() takes power
// readings.
void Assure::learn_power(const Estimate& estimate) {
  if (estimate.energy) energy_counter_ = true;
  if (!phase_ || !estimate.energy || estimate.time - held_since_ < window_) return;
  const double x = position(held_);
  if (energy_) {
    const double span = seconds(estimate.time - energy_->time);
    if (span < 1) return;
    // The counter moves every 0.1 s.
    const Watts mean = (*estimate.energy - energy_->energy) / from_seconds(span);
    const double variance = 0.003 * 0.003 + 0.1 * 0.1 / 3 / (span * span);
    phase_->power.observe(x, mean, variance);
    meter(*phase_, estimate.time, x, mean, variance);
  }
  energy_ = {estimate.time, *estimate.energy};
}

bool Assure::enough(double relative_sd) const {
  bool any = false;
  for (std::size_t i = 0; i < kSignals; ++i) {
    const Readings& readings = look_.signals[i];
    if (readings.count() == 0) continue;
    if (static_cast<Signal>(i) == Signal::power) continue;
    any = true;
    const bool wanted = !phase_ || std::find(phase_->signals.begin(), phase_->signals.end(),
                                             static_cast<Signal>(i)) != phase_->signals.end();
    if (wanted &&
        readings.relative_variance(step_of(static_cast<Signal>(i))) > relative_sd * relative_sd)
      return false;
  }
  return any;
}

// Readings that may be another phase's already teach nothing: the watch will tell.
void Assure::flush() {
  if (mixed_ || counters_fit(*phase_, look_)) {
    learn(*phase_, look_, last_.value_or(Instant{}));
    const Readings& power = look_.signals[static_cast<std::size_t>(Signal::power)];
    if (!energy_counter_ && power.count() > 0)
      phase_->power.observe(look_.x, Watts(power.mean()), kPowerReading * kPowerReading);
  }
  look_.clear();
}

// Innovations that drift: another phase.
bool Assure::changed(const Estimate& estimate) {
  if (!phase_ || mixed_) return false;
  if (jumped_) return true;
  if (estimate.work.phase != phase_->name) return true;
  for (std::size_t k = 0; k < phase_->signals.size(); ++k) {
    const auto i = static_cast<std::size_t>(phase_->signals[k]);
    if (!newest_[i] || phase_->curve.level_sd(k) > 1) continue;
    const Belief belief = phase_->curve.reading(k, look_.x);
    const double expected = std::exp(belief.mean), off = *newest_[i] - expected;
    // A counter that rests against its end has no noise, until it moves by one.
    const double step = step_of(phase_->signals[k]);
    const double noise = std::max(look_.signals[i].variance(step), step * step / 4);
    // What the curve's form leaves of this clock stays, however long it is looked at.
    const double beyond = std::copysign(std::max(0.0, std::abs(off) - kForm * expected), off);
    if (cusum_[i].add(beyond / std::sqrt(noise + std::pow(expected * belief.sd, 2)))) return true;
  }
  return false;
}

// --- phases --------------------------------------------------------------------------------------

void Assure::recall() {
  if (options_.models == nullptr) return;
  for (const PhaseModel& model : options_.models->recall(options_.chip))
    if (auto phase = from_model(model, priors_); phase && known_.size() < kMostPhases)
      known_.insert(known_.begin(), *std::move(phase));
}

void Assure::leave_phase() {
  if (!phase_) return;
  // Work is not faster at a low clock: such a phase was made of two.
  const bool sane = phase_->plausible(0.3);
  const bool learned = !phase_->signals.empty() && sane && last_ &&
                       (phase_->returned || *last_ - phase_->began > kNewPhase);
  if (!learned || mixed_) settle(*phase_);
  if (learned && !mixed_) {
    if (options_.models != nullptr && phase_->name.empty())
      phase_->id = options_.models->keep(to_model(*phase_, options_.chip));
    if (known_.size() >= kMostPhases) {
      settle(known_.front());
      known_.erase(known_.begin());
    }
    known_.push_back(*std::move(phase_));
  }
  phase_.reset();
}

// Takes up a phase that was known before and shows what is seen now; of several, the one that wants
// the highest clock.
bool Assure::resume(const Estimate& estimate) {
  const auto named = [&](const WorkPhase& phase) { return phase.name == estimate.work.phase; };
  std::size_t found = known_.size();
  double highest = 0;
  for (std::size_t i = known_.size(); i-- > 0;) {
    const auto& doubted = known_[i].doubted;
    if (doubted && estimate.time - *doubted < kDoubtFor) continue;
    if (!named(known_[i]) || !fits(known_[i], look_)) continue;
    const double costs = -known_[i].performance(0.3).mean;
    if (found < known_.size() && costs <= highest) continue;
    found = i;
    highest = costs;
  }
  if (found == known_.size()) return false;
  phase_ = std::move(known_[found]);
  known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(found));
  phase_->began = estimate.time;
  phase_->spent.add(std::exchange(pending_, {}));
  phase_->returned = true;
  probing_ = true;  // the present clock was another phase's
  cusum_ = {};
  return true;
}

void Assure::alarm(const Estimate& estimate) {
  // What did not show what it should, without a jump, was taken for another.
  if (phase_ && phase_->returned && !jumped_) phase_->doubted = estimate.time;
  leave_phase();
  cusum_ = {};
  energy_.reset();
  look_.clear();
  watch_.clear();
  held_since_ = estimate.time;
  alarms_.push_back(estimate.time);
  if (alarms_.size() > kRestless) alarms_.erase(alarms_.begin());
  mixed_ = alarms_.size() == kRestless && estimate.time - alarms_.front() < kRestlessTime;
  stage_ = mixed_ ? Stage::reference : Stage::recognise;
  since_ = estimate.time;
}

// --- what goes out -------------------------------------------------------------------------------

double Assure::earned() const {
  // A dry run runs at full speed: it would not have earned what it seems to.
  if (every_phase_ || options_.dry_run) return 0;
  return std::clamp(slack_s_ / kHorizon, -delta_, kMostEarned);
}

// The least log of performance that is sure enough at x; of unknown work what the clocks say.
double Assure::lower_bound(double x) const {
  return phase_ ? phase_->lower_bound(x, z_) : std::min(0.0, -x);
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
  if (!phase_) return std::nullopt;
  return Fraction(std::min(1.0, std::exp(phase_->performance(position(asked_)).mean)));
}

// Whether knowing the highest clock's readings better would let the clock go lower for long enough.
bool Assure::refresh_pays(const Estimate& estimate, const Envelope& envelope) const {
  if (asked_ <= envelope.lowest() || asked_ >= envelope.highest()) return false;
  if (estimate.time - held_since_ < window_ + kLookBeforeRefresh) return false;
  const Duration age = estimate.time - phase_->began;
  if (phase_->referred > kFreeReference + from_seconds(seconds(age) * kReferenceShare))
    return false;
  const double x = position(asked_), sd = phase_->curve.performance(x, phase_->reference_x).sd;
  double least = sd;
  for (std::size_t k = 0; k < phase_->signals.size(); ++k)
    least = std::min(least, phase_->curve.sd_with_level(k, x));
  return z_ * (sd - least) > kWorthRefresh;
}

// Of the clocks that keep the promise surely enough the one of least energy for the work; of
// those that are about as good the highest.
Megahertz Assure::best(const Envelope& envelope) const {
  const double promised = std::log(1 - delta_ - earned());
  Megahertz best = envelope.highest();
  double least = 0;
  for (auto clock = envelope.clocks().rbegin(); clock != envelope.clocks().rend(); ++clock) {
    const double x = position(*clock);
    if (lower_bound(x) < promised) continue;
    const double energy = phase_->power.relative(x).mean - phase_->performance(x).mean;
    if (clock != envelope.clocks().rbegin() && energy > least - kSameEnergy) continue;
    best = *clock;
    least = energy;
  }
  return best;
}

// The lowest clock that one look at may cost: the more it differs, the more it tells.
Megahertz Assure::probe_clock(const Envelope& envelope) const {
  const double time = seconds(window_ + std::chrono::milliseconds(800));
  const double may_cost = kLookShare * delta_ * seconds(kShortestJob);
  for (const Megahertz clock : envelope.clocks())
    if ((1 - clock / envelope.highest()) * time <= may_cost) return clock;
  return envelope.highest();
}

Decision Assure::refer(const Estimate& estimate, const Envelope& envelope) {
  const int count = look_.gpu_utilisation.count();
  const bool there = count >= kFewest;
  if (!phase_ && there && !mixed_ && resume(estimate)) {
    flush();
    stage_ = Stage::steady;
    return steady(estimate, envelope);
  }
  const Duration longest = mixed_ ? kMixedBatch : options_.reference;
  const bool beats = estimate.work.beat.has_value();
  const bool known = !mixed_ && enough(beats ? 0.002 : kEnough);
  const bool over = estimate.time - since_ >= longest + window_;
  if (!there || (!known && !over))
    return ask(envelope.highest(), true,
               {"learning what {0:.0f} MHz gives: {1:.0f} readings",
                {envelope.highest().value(), static_cast<double>(count)}});
  const bool first = !phase_;
  if (first) {
    phase_ = make_phase(look_, options_.highest, priors_);
    phase_->name = estimate.work.phase;
    phase_->began = since_;
    phase_->spent.add(std::exchange(pending_, {}));
  }
  phase_->referred += estimate.time - since_;
  flush();
  since_ = estimate.time;
  const bool may_look = first && !mixed_ && !every_phase_ && !phase_->signals.empty() &&
                        slack_s_ >= -0.2 * delta_ * seconds(kShortestJob) &&
                        lower_bound(position(envelope.lowest())) < std::log(1 - delta_);
  stage_ = may_look ? Stage::look : Stage::steady;
  return may_look ? look(estimate, envelope) : steady(estimate, envelope);
}

Decision Assure::look(const Estimate& estimate, const Envelope& envelope) {
  const bool there = look_.gpu_utilisation.count() > 0 && held_ < options_.highest * 0.99;
  const bool over = estimate.time - since_ > window_ + std::chrono::milliseconds(1500);
  if ((there && (enough(kBatchEnough) || look_.gpu_utilisation.count() >= kFewest)) || over) {
    if (look_.gpu_utilisation.count() > 0) flush();
    stage_ = Stage::steady;
    since_ = estimate.time;
    return steady(estimate, envelope);
  }
  const Megahertz clock = asked_ < envelope.highest() ? asked_ : probe_clock(envelope);
  return ask(clock, true, {"learning what {0:.0f} MHz costs", {clock.value()}});
}

Decision Assure::steady(const Estimate& estimate, const Envelope& envelope) {
  const bool batch = mixed_ ? estimate.time - held_since_ >= kMixedBatch &&
                                  look_.gpu_utilisation.count() >= kFewest
                            : enough(kBatchEnough) || look_.gpu_utilisation.count() >= kMostInBatch;
  if (batch) flush();
  if (refresh_pays(estimate, envelope)) {
    stage_ = Stage::reference;
    since_ = estimate.time;
    look_.clear();
    return refer(estimate, envelope);
  }
  const Megahertz wanted = best(envelope);
  const double promised = std::log(1 - delta_ - earned());
  const bool probed = std::exchange(probing_, false);
  const bool holds =
      !probed && asked_ > Megahertz(0) && lower_bound(position(asked_)) >= promised - kShort;
  const bool near = asked_ > Megahertz(0) && wanted > asked_ * (1 - kNear);
  const bool looked =
      near ? estimate.time - asked_at_ >= kNearAfter
           : batch || estimate.time - held_since_ >= window_ + std::chrono::seconds(1);
  if (asked_ > Megahertz(0) && holds && wanted < asked_ && !looked)
    return hold({"looking at {0:.0f} MHz", {asked_.value()}});
  if (holds && std::abs(std::log(wanted / asked_)) < 0.01)
    return hold({"{0:.0f} MHz keeps the promise", {asked_.value()}});
  const Belief belief = phase_->performance(position(wanted));
  return ask(wanted, false,
             {"{0:.0f} MHz: performance {1:.1f} % of the highest clock's, +- {2:.1f}; earned "
              "{3:.2f} s",
              {wanted.value(), 100 * std::exp(belief.mean), 100 * belief.sd, slack_s_}});
}

// Other work than before: what it is shows at the present clock, if that may last so long.
Decision Assure::recognise(const Estimate& estimate, const Envelope& envelope) {
  const double at_stake = (1 - held_ / options_.highest) * seconds(window_ + from_seconds(0.6));
  const bool may = slack_s_ + kLookShare * delta_ * seconds(kShortestJob) > at_stake;
  const bool seen = look_.gpu_utilisation.count() >= 2;
  if (seen && resume(estimate)) {
    flush();
    stage_ = Stage::steady;
    return steady(estimate, envelope);
  }
  if (!seen && may && !known_.empty())
    return Decision::hold({"the work has changed; watching {0:.0f} MHz", {held_.value()}});
  stage_ = Stage::reference;
  since_ = estimate.time;
  look_.clear();
  return refer(estimate, envelope);
}

Decision Assure::decide(const Estimate& estimate, const Envelope& envelope) {
  if (!estimate.gpu_utilisation) return Decision::hold({"no utilisation reading", {}});
  if (idle(estimate)) {
    count_spending(estimate, envelope);
    last_ = estimate.time;
    return Decision::hold({"no work", {}});
  }
  keep_account(estimate);
  count_spending(estimate, envelope);
  follow_clock(estimate);
  last_ = estimate.time;
  take(estimate);
  learn_power(estimate);
  if (stage_ == Stage::steady && changed(estimate)) alarm(estimate);
  if ((stage_ == Stage::reference || stage_ == Stage::look) && jumped_) alarm(estimate);
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

Result<std::unique_ptr<Policy>> create_assure(const PolicySetup& setup) {
  const auto number = [&](const char* name) { return *setup.params.number(name); };
  AssureOptions options;
  options.highest = setup.envelope.highest();
  options.delta = number("delta");
  options.confidence = number("confidence");
  options.settle = from_seconds(number("settle"));
  options.reference = from_seconds(number("reference"));
  const std::string prior = kPriors[static_cast<std::size_t>(number("prior"))];
  options.prior = prior == "own" ? setup.chip : prior == "all" ? "" : prior;
  options.leave_out = number("leave_out") > 0;
  options.dry_run = setup.dry_run;
  options.chip = setup.chip;
  options.models = setup.models;
  return std::make_unique<Assure>(options);
}

}  // namespace

PolicyInfo assure_info() {
  return {"assure",
          "keep the promise with a stated confidence, at the lowest clock that does",
          "Learns how progress follows the clock from few readings and a prior that measured "
          "applications gave, with its uncertainty; takes the clock of least energy that keeps the "
          "promise surely enough, counts what was earned and lost over the whole job, knows phases "
          "again that return, and looks at the highest clock only when it must.",
          false,
          kAssureParams,
          create_assure};
}

}  // namespace derate
