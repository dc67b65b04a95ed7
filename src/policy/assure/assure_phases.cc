#include "policy/assure/assure_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

constexpr int kFewestTold = 2;  // readings

}  // namespace

// The phase stands for what was done since the last alarm, too.
void Assure::be_known() {
  if (const auto more = belief_.be_known(*last_)) account_.work->credit(*more);
}

bool Assure::may_probe(Instant now) const {
  return account_.may_probe(now - began_, told_, window_);
}

// Phases take turns, and of one of them nothing is known, or little: it is seen best where this one
// was.
bool Assure::awaits_another(Instant now) const {
  if (watch_.mixed || !watch_.phases_take_turns() || !may_probe(now)) return false;
  return belief_.knows_too_little(now, told_);
}

void Assure::leave_phase() {
  Readings& beats = look_.signals[static_cast<std::size_t>(Signal::beat)];
  beats.clear();
  const Readings noise = std::exchange(beats, {});
  belief_.leave({.now = last_, .beats = noise, .mixed = watch_.mixed, .restless = watch_.restless},
                options_, account_.settled);
}

std::size_t Assure::known_by_readings(const Estimate& estimate) const {
  ReadingBatch seen = look_;
  for (const ReadingTick& tick : held_back_) seen.add(tick, options_.highest);
  return belief_.find_by_readings(seen, {.name = estimate.work.phase,
                                         .now = estimate.time,
                                         .hears = hears_,
                                         .awaits_beats = late_beats_ == LateBeats::awaited,
                                         .restless = watch_.restless});
}

void Assure::count_late(const Estimate& estimate) {
  if (!estimate.sm_clock) return;
  account_.count_late(std::exp(belief_.lower_bound(options_.position(*estimate.sm_clock))),
                      options_.tick);
}

// Takes up a phase that was known before.
bool Assure::resume(const Estimate& estimate) {
  const std::size_t found =
      by_name_ ? belief_.find_by_name(estimate.work.phase) : known_by_readings(estimate);
  if (found == belief_.known.size()) return false;
  belief_.take_up(found, estimate.time);
  prospects_.clear();
  belief_.phase->spent.add(std::exchange(account_.pending, {}));
  look_.signals[static_cast<std::size_t>(Signal::beat)] = belief_.phase->beats;
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
  const bool new_one = stage_ == Stage::reference && !belief_.phase && !watch_.mixed;
  const int fewest = told_ ? kFewestTold : kFewest;
  if (new_one && static_cast<int>(in_look_.size()) >= fewest && look_.x < kAtReference) {
    belief_.make(look_, options_.highest, left, since_);
    belief_.phase->returned = true;  // however short it was
    be_known();
  }
  if (belief_.phase && watch_.restless && stage_ != Stage::recognise && !in_look_.empty()) flush();
}

// The first beats after the phase was learned by counters: it is learned anew, by them. The work is
// the same, so this is no alarm.
bool Assure::begins_to_speak() const {
  const bool beat = newest_[static_cast<std::size_t>(Signal::beat)].has_value();
  return beat && belief_.phase && !speaks(*belief_.phase) && late_beats_ == LateBeats::none;
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
  if (belief_.phase && belief_.phase->returned && !watch_.jumped && !watch_.restless)
    belief_.phase->doubted = estimate.time;
  const std::size_t others = belief_.known.size();
  leave_phase();
  belief_.others_known = watch_.jumped ? others > 0 : !belief_.known.empty();
  belief_.stay_unknown(estimate.time);
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
