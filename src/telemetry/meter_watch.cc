#include "telemetry/meter_watch.h"

#include <utility>

namespace derate {

bool MeterWatch::add(const Sample& sample) {
  odometer_.add(sample);
  if (!sample.energy) return false;
  State next = state_;
  const CounterWatch::Verdict verdict = counter_.judge(*sample.energy, sample.time);
  if (verdict == CounterWatch::Verdict::still && board_power(sample)) next = State::still;
  if (verdict == CounterWatch::Verdict::moved && state_ == State::still) next = State::sound;
  const EnergyTotals now = odometer_.totals(odometer_.mark(sample.time));
  if (now.checked - begin_.checked >= kCompared) {
    ratio_ = check_ratio(std::exchange(begin_, now), now);
    if (ratio_ && next != State::still)
      next = is_agreement(*ratio_) ? State::sound : State::differs;
  }
  return std::exchange(state_, next) != next;
}

}  // namespace derate
