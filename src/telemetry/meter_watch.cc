#include "telemetry/meter_watch.h"

#include <utility>

namespace derate {

// A counter that stood still is sound again once it has been compared over kCompared. Without power
// there is nothing to compare it with: it must then move for twice that time.
MeterWatch::State MeterWatch::judged(const Sample& sample) {
  const CounterWatch::Verdict verdict = counter_.judge(*sample.energy, sample.time);
  const EnergyTotals now = odometer_.totals(odometer_.mark(sample.time));
  if (verdict == CounterWatch::Verdict::still) {
    begin_ = now;
    moves_.reset();
    return board_power(sample) ? State::still : state_;
  }
  if (verdict == CounterWatch::Verdict::moved && !moves_) moves_ = sample.time;
  if (now.checked - begin_.checked >= kCompared) {
    ratio_ = check_ratio(std::exchange(begin_, now), now);
    if (ratio_) return is_agreement(*ratio_) ? State::sound : State::differs;
  }
  const bool moves_for_long = moves_ && sample.time - *moves_ >= 2 * kCompared;
  return state_ == State::still && moves_for_long ? State::sound : state_;
}

bool MeterWatch::add(const Sample& sample) {
  odometer_.add(sample);
  if (!sample.energy) return false;
  const State next = judged(sample);
  return std::exchange(state_, next) != next;
}

}  // namespace derate
