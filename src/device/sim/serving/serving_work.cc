#include "device/sim/serving/serving_work.h"

#include <algorithm>
#include <utility>

namespace derate {

ServingWork::ServingWork(const ServingLaw& law, const SimChip& chip, const EngineLimits& limits,
                         std::span<const ServingRequest> requests)
    : engine_(limits, requests), clock_(chip.sm_clocks.size() - 1) {
  for (const Megahertz clock : chip.sm_clocks) models_.emplace_back(law, chip, clock);
  begin(0);
}

const OperatingPoint& ServingWork::at(std::size_t clock) const {
  clock_ = clock;
  point_.rate = top_seconds_ / seconds_at(clock);
  point_.power = models_[clock].power(*load_);
  point_.gpu_utilisation = Fraction(1);
  point_.memory_utilisation = std::nullopt;
  return point_;
}

void ServingWork::begin(double now_s) {
  load_ = engine_.begin(now_s);
  if (!load_) return;
  top_seconds_ = models_.back().seconds(*load_);
  left_ = top_seconds_;
}

void ServingWork::work(double done, double step_s) {
  const StepModel::Energy energy = models_[clock_].energy(*load_);
  energy_.steps_j += point_.power.value() * step_s;
  energy_.prompts_j += point_.power.value() * step_s * energy.prompts_j / energy.all_j;
  double rate = done / step_s, rest_s = step_s + owed_s_;
  now_s_ -= std::exchange(owed_s_, 0);
  while (load_ && left_ <= rate * rest_s + kWorkResidue) {
    const double used_s = std::min(rest_s, left_ / rate);
    now_s_ += used_s;
    rest_s -= used_s;
    engine_.end(now_s_);
    begin(now_s_);
    if (load_) rate = top_seconds_ / seconds_at(clock_);
  }
  if (!load_) return wait(rest_s);
  left_ -= rate * rest_s;
  now_s_ += rest_s;
}

void ServingWork::wait(double step_s) {
  const double until_s = now_s_ + step_s;
  const double arrival_s = engine_.next_arrival_s();
  if (arrival_s <= until_s) {
    now_s_ = std::max(now_s_, arrival_s);
    begin(now_s_);
    // The clock of a GPU that does not work is not seen here: the rest of its step is worked off
    // in its next one.
    if (load_) owed_s_ = until_s - now_s_;
  }
  now_s_ = until_s;
}

namespace {

LatencyHistogram histogram(const LatencyCounts& counts) {
  LatencyHistogram out;
  out.edges_s.assign(counts.edges.begin(), counts.edges.end());
  double sum = 0;
  for (const double count : counts.counts) out.counts.push_back(sum += count);
  out.sum_s = counts.sum_s;
  return out;
}

}  // namespace

ServingState serving_state(const EngineCounters& counters, Instant time) {
  ServingState out;
  out.time = time;
  out.running = counters.running;
  out.waiting = counters.waiting;
  out.kv_share = std::min(1.0, counters.kv_share);
  out.prompt_tokens = counters.prompt_tokens;
  out.generated_tokens = counters.generated_tokens;
  out.steps = static_cast<double>(counters.steps);
  out.between_tokens = histogram(counters.between_tokens);
  out.first_token = histogram(counters.first_token);
  return out;
}

}  // namespace derate
