#include "telemetry/sampler.h"

#include <algorithm>

namespace derate {

Sampler::Sampler(TelemetrySource& source, Clock& clock, const SamplerOptions& options,
                 std::span<const FieldNeed> needs)
    : source_(source),
      clock_(clock),
      options_(options),
      needs_(needs.begin(), needs.end()),
      costs_(source.costs()) {
  const auto as_often = [](Duration& every, Duration within) { every = std::min(every, within); };
  for (const auto& [field, within] : needs) {
    if (field == Field::energy) as_often(options_.energy_every, within);
    if (field == Field::activity) as_often(options_.activity_every, within);
    if (field == Field::tenants) as_often(options_.processes_every, within);
  }
}

// By what factor the expensive fields are read more seldom than the options say.
double Sampler::stretch() const {
  if (costs_ == nullptr) return 1;
  const auto share = [&](DriverCall call, Duration every) {
    const Duration cost = costs_->mean(call);
    return cost < kDearCall ? 0 : seconds(cost) / seconds(every);
  };
  const double all = share(DriverCall::energy, options_.energy_every) +
                     share(DriverCall::activity, options_.activity_every) +
                     share(DriverCall::processes, options_.processes_every);
  return std::max(1.0, all / (idle_ ? options_.idle_driver_share : options_.driver_share));
}

// A need of the policy is kept, whatever it costs.
Duration Sampler::paced(Field field, DriverCall call, Duration every) const {
  // Without work there is no activity, and power gives the energy.
  const bool rests = idle_ && field != Field::tenants;
  const std::chrono::seconds seldom(rests ? 30 : 10);
  if (costs_ == nullptr || costs_->mean(call) < kDearCall) return every;
  auto most = std::max<Duration>(every, seldom);
  for (const FieldNeed& need : needs_)
    if (need.field == field) most = std::max(every, std::min(most, need.within / 2));
  return std::min(from_seconds(seconds(every) * stretch()), most);
}

void Sampler::want_counter(CounterNeed need) {
  counter_wanted_ = counter_wanted_ || need == CounterNeed::now || stretch() <= 1;
}

// The schedule keeps its phase when a tick comes late, and skips what was missed. A tick that comes
// a little early is on time: loop and schedule often have the same period.
bool Sampler::due(Instant& next, Duration every, Instant now) const {
  const Instant about = now + every / 10;
  // A pace that has become quicker holds at once.
  if (next != Instant::min() && next > now + every + every / 10) next = now + every;
  if (next != Instant::min() && about < next) return false;
  next = next == Instant::min() ? now + every : next + ((about - next) / every + 1) * every;
  return true;
}

void Sampler::start(ReadDepth depth) {
  const Instant now = clock_.now();
  const bool all = depth == ReadDepth::all;
  ReadPlan plan;
  // As with what is due: a little early is on time.
  const bool moved = !counter_read_ || now + kCounterStep / 10 - *counter_read_ >= kCounterStep;
  const bool wanted = counter_wanted_ && moved;
  const Duration energy_every = paced(Field::energy, DriverCall::energy, options_.energy_every);
  plan.energy = due(next_energy_, energy_every, now) || all || wanted;
  if (wanted) next_energy_ = now + energy_every;  // read no more often for it
  if (plan.energy) {
    counter_read_ = now;
    counter_wanted_ = false;
  }
  plan.activity = due(next_activity_,
                      paced(Field::activity, DriverCall::activity, options_.activity_every), now) ||
                  all;
  plan.processes =
      due(next_processes_, paced(Field::tenants, DriverCall::processes, options_.processes_every),
          now) ||
      all;
  started_ = plan;
  source_.start_reading(plan);
}

// A value that is the same as before may have been read anew by its sensor: nobody can tell.
void Sampler::note_origins(const Sample& sample) {
  for (std::size_t i = 0; i < kFields; ++i) {
    const auto field = static_cast<Field>(i);
    if (!has(sample, field)) continue;
    const FieldRead read = read_of(sample, field);
    auto& origin = origins_[field];
    const bool renewed = !origin || !same(sample, last_, field);
    origin = FieldOrigin{read.taken, renewed ? read.taken : origin->renewed, read.source};
    copy(sample, field, last_);
  }
}

Reading Sampler::sample(ReadDepth depth) {
  if (!started_) start(depth);
  const ReadPlan plan = *started_;
  started_.reset();
  Reading reading;
  auto sample = source_.read(plan);
  if (sample.ok()) {
    note_origins(*sample);
    newest_ = *sample;
    idle_ = sample->gpu_utilisation == Fraction(0);
    reading.fresh = *std::move(sample);
  } else {
    reading.failure = std::move(sample).error();
  }
  reading.newest = newest_;
  reading.origins = origins_;
  if (newest_) reading.age = clock_.now() - newest_->time;
  return reading;
}

}  // namespace derate
