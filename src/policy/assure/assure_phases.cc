#include "policy/assure/assure_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

constexpr Duration kNewPhase = std::chrono::seconds(2);  // shorter ones are not remembered
constexpr double kOfTwo = 3;                             // strain
constexpr Duration kDoubtFor = std::chrono::seconds(20);
constexpr std::size_t kMostPhases = 32;
constexpr int kFewestTold = 2;  // readings

}  // namespace

void Assure::name_priors(const std::string& work) {
  if (!options_.leave_out || work == left_out_) return;
  left_out_ = work;
  priors_ = curve_priors(options_.prior, work);
  priors_.overstated = options_.overstated;
}

// What the phases have done of late, in seconds at the reference.
void Assure::count_work(bool known, double x, double time) {
  unknown_s_ = known ? 0 : unknown_s_ + time;
  if (!known) {
    unknown_.time += time;
    unknown_.x += x * time;
    return;
  }
  phase_->recent.add(*last_, std::exp(phase_->performance(x).mean) * time);
}

// The phase stands for what was done since the last alarm, too.
void Assure::be_known() {
  const auto [time, sum] = std::exchange(unknown_, {});
  if (time <= 0) return;
  const double x = sum / time;
  account_.work->credit((std::exp(lower_bound(x)) - std::exp(-x)) * time);
  phase_->recent.add(*last_, std::exp(phase_->performance(x).mean) * time);
}

bool Assure::may_probe(Instant now) const {
  return account_.may_probe(now - began_, told_, window_);
}

// Whether it is known what the phase does at the highest clock.
bool Assure::is_well_known(const WorkPhase& phase) const {
  return !speaks(phase) || phase.reference_rate.rate().sd <= kEnough;
}

// Phases take turns, and of one of them nothing is known, or little: it is seen best where this one
// was.
bool Assure::awaits_another(Instant now) const {
  if (watch_.mixed || !watch_.phases_take_turns() || !may_probe(now)) return false;
  double unknown = unknown_recent_.at(now), all = unknown;
  const auto add = [&](const WorkPhase& phase) {
    const double work = phase.recent.at(now);
    all += work;
    if (told_ && !is_well_known(phase)) unknown += work;
  };
  if (phase_) add(*phase_);
  for (const WorkPhase& phase : known_) add(phase);
  return unknown > kLeastOfMixture * all;
}

void Assure::recall() {
  if (options_.models == nullptr) return;
  for (const PhaseModel& model : options_.models->recall(options_.chip))
    if (auto phase = from_model(model, priors_); phase && known_.size() < kMostPhases)
      known_.insert(known_.begin(), *std::move(phase));
}

void Assure::leave_phase() {
  Readings& beats = look_.signals[static_cast<std::size_t>(Signal::beat)];
  beats.clear();
  const Readings noise = std::exchange(beats, {});
  if (!phase_) return;
  phase_->beats = noise;
  if (last_) phase_->lasted += *last_ - phase_->began;
  ++phase_->visits;
  // Work is not faster at a low clock: such a phase was made of two.
  const bool sane = phase_->plausible(0.3) && phase_->strain() < kOfTwo;
  const bool learned = !phase_->signals.empty() && sane && last_;
  if (!learned || watch_.mixed) settle(*phase_);
  if (learned && !watch_.mixed) {
    const bool lasting = phase_->returned || watch_.restless || *last_ - phase_->began > kNewPhase;
    if (options_.models != nullptr && phase_->name.empty() && lasting)
      phase_->id = options_.models->keep(to_model(*phase_, options_.chip));
    if (known_.size() >= kMostPhases) {
      settle(known_.front());
      known_.erase(known_.begin());
    }
    known_.push_back(*std::move(phase_));
  }
  phase_.reset();
}

// What launches tell is that phase; where it was learned twice, the one that was there last.
std::size_t Assure::known_by_name(const Estimate& estimate) const {
  const auto of_the_name = [&](const WorkPhase& phase) {
    return speaks(phase) && phase.name == estimate.work.phase;
  };
  const auto found = std::find_if(known_.rbegin(), known_.rend(), of_the_name);
  return found == known_.rend() ? known_.size()
                                : static_cast<std::size_t>(known_.rend() - found) - 1;
}

// One that shows what is seen now; of several, the one that wants the highest clock.
std::size_t Assure::known_by_readings(const Estimate& estimate) const {
  ReadingBatch seen = look_;
  for (const ReadingTick& tick : held_back_) seen.add(tick, options_.highest);
  const auto named = [&](const WorkPhase& phase) {
    const bool by_the_same = speaks(phase) ? hears_ : late_beats_ != LateBeats::awaited;
    return phase.name == estimate.work.phase && by_the_same;
  };
  std::size_t found = known_.size();
  double highest = 0;
  for (std::size_t i = known_.size(); i-- > 0;) {
    const auto& doubted = known_[i].doubted;
    if (doubted && !watch_.restless && estimate.time - *doubted < kDoubtFor) continue;
    if (!named(known_[i]) || !fits(known_[i], seen)) continue;
    const double costs = -known_[i].performance(0.3).mean;
    if (found < known_.size() && costs <= highest) continue;
    found = i;
    highest = costs;
  }
  return found;
}

void Assure::count_late(const Estimate& estimate) {
  if (!estimate.sm_clock) return;
  account_.count_late(std::exp(lower_bound(options_.position(*estimate.sm_clock))), options_.tick);
}

// Takes up a phase that was known before.
bool Assure::resume(const Estimate& estimate) {
  const std::size_t found = by_name_ ? known_by_name(estimate) : known_by_readings(estimate);
  if (found == known_.size()) return false;
  phase_ = std::move(known_[found]);
  prospects_.clear();
  known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(found));
  phase_->began = estimate.time;
  phase_->spent.add(std::exchange(account_.pending, {}));
  phase_->returned = true;
  look_.signals[static_cast<std::size_t>(Signal::beat)] = phase_->beats;
  probing_ = !watch_.restless;  // the present clock was another phase's
  be_known();
  watch_.innovations = {};
  return true;
}

// What was read of a phase before it ended may be all that there is of it.
void Assure::keep_visit(const std::string& left) {
  const std::size_t doubted = doubtful() - std::min(doubtful(), held_back_.size());
  in_look_.resize(in_look_.size() - std::min(in_look_.size(), doubted));
  look_.clear();
  for (const ReadingTick& tick : in_look_) look_.add(tick, options_.highest);
  const bool new_one = stage_ == Stage::reference && !phase_ && !watch_.mixed;
  const int fewest = told_ ? kFewestTold : kFewest;
  if (new_one && static_cast<int>(in_look_.size()) >= fewest && look_.x < kAtReference) {
    phase_ = make_phase(look_, options_.highest, priors_);
    phase_->name = left;
    unknown_recent_ = {};  // probably it
    phase_->began = since_;
    phase_->returned = true;  // however short it was
    be_known();
  }
  if (phase_ && watch_.restless && stage_ != Stage::recognise && !in_look_.empty()) flush();
}

// The first beats after the phase was learned by counters: it is learned anew, by them. The work is
// the same, so this is no alarm.
bool Assure::begins_to_speak() const {
  const bool beat = newest_[static_cast<std::size_t>(Signal::beat)].has_value();
  return beat && phase_ && !speaks(*phase_) && late_beats_ == LateBeats::none;
}

void Assure::learn_by_beats(const Estimate& estimate) {
  late_beats_ = LateBeats::awaited;
  leave_phase();
  energy_.reset();
  drop_readings();
  watch_.clear();
  by_name_ = told_;
  stage_ = told_ && resume(estimate) ? Stage::steady : Stage::reference;
  since_ = estimate.time;
}

void Assure::alarm(const Estimate& estimate, const std::string& left) {
  keep_visit(left);
  account_.work->end_visit();
  // What did not show what it should, without a jump, was taken for another.
  if (phase_ && phase_->returned && !watch_.jumped && !watch_.restless)
    phase_->doubted = estimate.time;
  const std::size_t others = known_.size();
  leave_phase();
  others_known_ = watch_.jumped ? others > 0 : !known_.empty();
  const auto [time, sum] = std::exchange(unknown_, {});
  if (time > 0) unknown_recent_.add(estimate.time, std::exp(-sum / time) * time);
  energy_.reset();
  drop_readings();
  watch_.clear();
  utilisation_still_.moved();
  activity_still_.moved();
  // Two readings raise an alarm: the work changed before the first of them. A window of launches
  // lay in the new phase.
  held_since_ =
      estimate.time - (watch_.restless || told_ ? from_seconds(options_.tick) : Duration{});
  watch_.alarm(estimate.time, window_);
  stage_ = watch_.mixed ? Stage::reference : Stage::recognise;
  since_ = estimate.time;
}

}  // namespace derate
