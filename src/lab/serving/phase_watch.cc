#include "lab/serving/phase_watch.h"

namespace derate {

void PhaseWatch::see(const Record& record) {
  if (!record.sample) return;
  take_clock(*record.sample);
  odometer_.add(*record.sample);
  const auto& serving = record.estimate.work.serving;
  if (serving == nullptr || serving == before_) return;
  take_metrics(serving, odometer_.totals(odometer_.mark(record.sample->time)).energy);
}

void PhaseWatch::take_clock(const Sample& sample) {
  if (!sample.sm_clock) return;
  shares_ += *sample.sm_clock / highest_;
  ++clocks_;
}

void PhaseWatch::take_metrics(const SharedServingState& state, Joules energy) {
  if (const auto delta = engine_.look(state))
    phases_.look(*delta, phase_look(*before_, *state, (energy - energy_).value(),
                                    clocks_ > 0 ? shares_ / clocks_ : 1));
  before_ = state;
  energy_ = energy;
  shares_ = 0;
  clocks_ = 0;
}

}  // namespace derate
