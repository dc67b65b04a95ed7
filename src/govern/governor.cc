#include "govern/governor.h"

namespace derate {
namespace {

constexpr Celsius kThermalMargin{5};

}  // namespace

Governor::Governor(std::vector<GovernedGpu> gpus, Clock& clock, const GovernorOptions& options)
    : clock_(clock), options_(options) {
  for (GovernedGpu& gpu : gpus) {
    const auto slowdown = gpu.source->capability().slowdown_temperature;
    std::optional<Celsius> limit = options.rules.temperature_limit;
    if (!limit && slowdown) limit = *slowdown - kThermalMargin;
    Sampler sampler(*gpu.source, clock, options.sampling);
    Safety safety(options.rules, gpu.envelope, gpu.as_published);
    Actuator actuator(gpu.control);
    seats_.push_back(Seat{std::move(gpu), std::move(sampler), std::move(safety),
                          std::move(actuator), limit, false, std::nullopt});
  }
}

Estimate Governor::estimate(Seat& seat, const Reading& reading) const {
  Estimate out;
  out.time = clock_.now();
  out.requested_clock = seat.actuator.locked();
  if (!reading.newest) return out;
  const SafetyRules& rules = options_.rules;
  const bool usable = reading.fresh && reading.age <= rules.stale_after;
  out.freshness = reading.age > rules.expire_after ? Freshness::expired
                  : usable                         ? Freshness::fresh
                                                   : Freshness::stale;
  const Sample& sample = *reading.newest;
  out.sm_clock = sample.sm_clock;
  out.gpu_utilisation = sample.gpu_utilisation;
  out.memory_utilisation = sample.memory_utilisation;
  // A trace may hold field 185 only: on Hopper it is what nvmlDeviceGetPowerUsage returns.
  out.power_usage = sample.power_usage ? sample.power_usage : sample.power_average;
  out.power = sample.power_instant ? sample.power_instant : out.power_usage;
  out.activity = sample.activity;

  const bool no_kernel = sample.gpu_utilisation && sample.gpu_utilisation->value() <= 0;
  if (!no_kernel)
    seat.idle_since.reset();
  else if (!seat.idle_since)
    seat.idle_since = out.time;
  out.idle = seat.idle_since && out.time - *seat.idle_since >= rules.idle_after;

  if (sample.temperature && seat.hot_above) {
    // Hot from the limit up, cool again 5 K below it.
    if (*sample.temperature >= *seat.hot_above) seat.hot = true;
    if (*sample.temperature < *seat.hot_above - kThermalMargin) seat.hot = false;
  }
  out.hot = seat.hot;
  return out;
}

std::span<const Record> Governor::tick(bool everything) {
  records_.clear();
  Fraction busy{0};
  for (Seat& seat : seats_) {
    Reading reading = seat.sampler.sample(everything);
    Record record;
    record.time = clock_.now();
    record.gpu = static_cast<int>(records_.size());
    record.estimate = estimate(seat, reading);
    record.sample = std::move(reading.fresh);
    if (reading.failure) record.sample_error = std::move(reading.failure->message);
    busy += record.estimate.gpu_utilisation.value_or(Fraction(0));
    records_.push_back(std::move(record));
  }
  for (Record& record : records_) {
    Seat& seat = seats_[static_cast<std::size_t>(record.gpu)];
    record.estimate.node_gpu_utilisation = busy;
    const Envelope& envelope = seat.safety.envelope(record.estimate);
    record.decision = record.estimate.freshness == Freshness::fresh
                          ? seat.gpu.policy->decide(record.estimate, envelope)
                          : Decision::hold({"no fresh reading", {}});
    record.clamped = seat.safety.clamp(record.decision, record.estimate, seat.actuator.locked());
    record.actuation = seat.actuator.apply(record.clamped.decision);
  }
  return records_;
}

Result<void> Governor::restore() {
  std::optional<Error> first;
  for (Seat& seat : seats_) {
    auto restored = seat.actuator.restore().with(seat.gpu.source->capability().id.uuid);
    if (!restored.ok() && !first) first = std::move(restored).error();
  }
  if (first) return *std::move(first);
  return {};
}

}  // namespace derate
