#include "telemetry/sampler.h"

#include <algorithm>

namespace derate {

Sampler::Sampler(TelemetrySource& source, Clock& clock, const SamplerOptions& options,
                 std::span<const FieldNeed> needs)
    : source_(source), clock_(clock), options_(options) {
  const auto as_often = [](Duration& every, Duration within) { every = std::min(every, within); };
  for (const auto& [field, within] : needs) {
    if (field == Field::energy) as_often(options_.energy_every, within);
    if (field == Field::activity) as_often(options_.activity_every, within);
    if (field == Field::tenants) as_often(options_.processes_every, within);
  }
}

// The schedule keeps its phase when a tick comes late, and skips what was missed. A tick that comes
// a little early is on time: loop and schedule often have the same period.
bool Sampler::due(Instant& next, Duration every, Instant now) const {
  const Instant about = now + every / 10;
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
  plan.energy = due(next_energy_, options_.energy_every, now) || all || wanted;
  if (wanted) next_energy_ = now + options_.energy_every;  // read no more often for it
  if (plan.energy) {
    counter_read_ = now;
    counter_wanted_ = false;
  }
  plan.activity = due(next_activity_, options_.activity_every, now) || all;
  plan.processes = due(next_processes_, options_.processes_every, now) || all;
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
