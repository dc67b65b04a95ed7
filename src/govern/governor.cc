#include "govern/governor.h"

#include <algorithm>
#include <utility>

namespace derate {
namespace {

constexpr Celsius kThermalMargin{5};

}  // namespace

Governor::Governor(std::vector<GovernedGpu> gpus, Clock& clock, const GovernorOptions& options)
    : clock_(clock), options_(options) {
  for (GovernedGpu& gpu : gpus) gpus_.push_back(make_state(std::move(gpu)));
}

std::unique_ptr<Governor::GpuControlState> Governor::make_state(GovernedGpu gpu) const {
  const Capability& capability = gpu.source->capability();
  std::optional<Celsius> limit = options_.rules.temperature_limit;
  if (!limit && capability.slowdown_temperature)
    limit = *capability.slowdown_temperature - kThermalMargin;
  const DriftRule on_drift = gpu.as_published ? DriftRule::ignore : gpu.on_drift;
  Sampler sampler(*gpu.source, clock_, options_.sampling);
  Safety safety(options_.rules, gpu.envelope, gpu.as_published);
  Actuator actuator(gpu.control, {capability.sm_clocks, on_drift, std::move(gpu.journal_handle)});
  return std::unique_ptr<GpuControlState>(new GpuControlState{
      std::move(gpu), std::move(sampler), std::move(safety), std::move(actuator), limit});
}

// Policies that run as published decide for one GPU, as they did.
void Governor::form_units() {
  std::vector<StepCandidate> candidates;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const GovernedGpu& gpu = gpus_[i]->gpu;
    const auto& group = gpus_[i]->work.step_group;
    if (!group || gpu.observed || gpu.as_published || gpu.policy_key.empty()) continue;
    candidates.push_back(
        {i, *group, gpu.policy_key, gpu.envelope.clocks(), gpu.tick, gpu.control == nullptr});
  }
  if (!candidates.empty() || !units_.empty()) regroup(step_sets(candidates));
}

void Governor::regroup(std::vector<StepSet> sets) {
  const StepChanges changes = derate::regroup(units_, std::move(sets));
  for (const auto& [from, to] : changes.swapped) {
    std::swap(gpus_[from]->gpu.policy, gpus_[to]->gpu.policy);
    std::swap(gpus_[from]->saving, gpus_[to]->saving);
  }
  for (const std::size_t at : changes.begin_anew) gpus_[at]->gpu.policy->begin_anew();
  for (StepUnit& unit : units_) {
    const auto& formed = changes.formed;
    if (std::find(formed.begin(), formed.end(), unit.leader) == formed.end()) continue;
    if (const auto clock = gpus_[unit.leader]->actuator.locked())
      unit.last = Decision::set(*clock, {"as the first GPU of those in step", {}});
  }
}

void Governor::leave_unit(std::size_t at) {
  std::vector<StepSet> sets;
  for (const StepUnit& unit : units_) sets.push_back(unit.set);
  for (StepSet& set : sets) std::erase(set.gpus, at);
  std::erase_if(sets, [](const StepSet& set) { return set.gpus.size() < 2; });
  if (unit_of(at) != nullptr) regroup(std::move(sets));
}

const StepUnit* Governor::unit_of(std::size_t at) const {
  for (const StepUnit& unit : units_)
    if (unit.has(at)) return &unit;
  return nullptr;
}

// The schedule keeps its phase when a tick comes late, and skips what was missed. A tick that comes
// a little early is on time: loop and schedule often have the same period.
bool Governor::due(GpuControlState& state, ReadDepth depth) const {
  const Duration tick = state.gpu.tick;
  const Instant now = clock_.now(), about = now + tick / 10;
  if (state.next && about < *state.next) return depth == ReadDepth::all;
  if (tick == Duration::zero())
    state.next = now;
  else if (!state.next)
    state.next = now + tick;
  else
    *state.next += ((about - *state.next) / tick + 1) * tick;
  return true;
}

// GPUs in step have their ticks together.
std::vector<bool> Governor::all_due(ReadDepth depth) {
  std::vector<bool> out(gpus_.size());
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const StepUnit* unit = unit_of(i);
    if (unit == nullptr || unit->leader == i) out[i] = due(*gpus_[i], depth);
  }
  for (const StepUnit& unit : units_)
    for (const std::size_t at : unit.set.gpus) {
      out[at] = out[unit.leader];
      gpus_[at]->next = gpus_[unit.leader]->next;
    }
  return out;
}

Instant Governor::next_due() const {
  Instant next = Instant::max();
  for (const auto& state : gpus_) next = std::min(next, state->next.value_or(clock_.now()));
  return next;
}

// Whether a count of launches has grown of late.
bool Governor::launching(GpuControlState& state, Instant now) const {
  const std::optional<Beat>& beat = state.work.beat;
  const bool launches = beat && beat->unsteadiness;
  const std::optional<Beat>& last = state.last_launches;
  if (launches && (!last || last->source != beat->source || last->done < beat->done))
    state.last_launches = beat;
  return launches && now - state.last_launches->time < options_.rules.idle_after;
}

Estimate Governor::estimate(GpuControlState& state, const Reading& reading) const {
  Estimate out;
  out.time = clock_.now();
  out.requested_clock = state.actuator.locked();
  out.work = state.work;
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
  if (reading.fresh) out.energy = sample.energy;
  out.throttle_reasons = sample.throttle_reasons;
  out.activity = sample.activity;
  out.tenants = sample.tenants;

  out.launching = launching(state, out.time);
  const bool no_kernel =
      sample.gpu_utilisation && sample.gpu_utilisation->value() <= 0 && !out.launching;
  if (!no_kernel)
    state.idle_since.reset();
  else if (!state.idle_since)
    state.idle_since = out.time;
  out.idle = state.idle_since && out.time - *state.idle_since >= rules.idle_after;

  if (sample.temperature && state.hot_above) {
    // Hot from the limit up, cool again 5 K below it.
    if (*sample.temperature >= *state.hot_above) state.hot = true;
    if (*sample.temperature < *state.hot_above - kThermalMargin) state.hot = false;
  }
  out.hot = state.hot;
  return out;
}

void Governor::read(GpuControlState& state, std::size_t at, ReadDepth depth) {
  Reading reading = state.sampler.sample(depth);
  Record record;
  record.time = clock_.now();
  record.gpu = static_cast<int>(at);
  record.estimate = estimate(state, reading);
  record.sample = std::move(reading.fresh);
  if (reading.failure) {
    record.sample_failure = reading.failure->code;
    record.sample_error = std::move(reading.failure->message);
  }
  state.busy = record.estimate.gpu_utilisation.value_or(Fraction(0));
  records_.push_back(std::move(record));
}

void Governor::decide(StepUnit& unit) {
  std::vector<StepReading> readings;
  for (const Record& record : records_) {
    const auto at = static_cast<std::size_t>(record.gpu);
    if (!unit.has(at)) continue;
    readings.push_back({at, &record.estimate, &gpus_[at]->safety.envelope(record.estimate)});
  }
  if (!readings.empty()) decide_in_step(unit, readings, *gpus_[unit.leader]->gpu.policy);
}

void Governor::decide(GpuControlState& state, Record& record, const StepUnit* unit) {
  const Envelope& envelope = state.safety.envelope(record.estimate);
  if (record.estimate.freshness != Freshness::fresh)
    record.decision = Decision::hold({"no fresh reading", {}});
  else
    record.decision =
        unit != nullptr ? unit->decision : state.gpu.policy->decide(record.estimate, envelope);
  if (unit != nullptr) record.pace = static_cast<int>(unit->pace);
  record.clamped = state.safety.clamp(record.decision, record.estimate, state.actuator.locked());
  record.actuation = state.actuator.apply(record.clamped.decision, record.estimate);
}

// The policy looks over all of its phases: each second is enough.
std::optional<Saving> Governor::new_saving(GpuControlState& state, Instant now, ReadDepth depth) {
  constexpr Duration kEvery = std::chrono::seconds(1);
  if (depth == ReadDepth::due && state.saving_at && now - *state.saving_at < kEvery)
    return std::nullopt;
  state.saving_at = now;
  auto all = state.gpu.policy->saving();
  if (!all) return std::nullopt;
  Saving out = *all;
  out -= std::exchange(state.saving, *all);
  return out;
}

void Governor::add_savings(ReadDepth depth) {
  std::vector<std::optional<Saving>> of_units;
  for (const StepUnit& unit : units_)
    of_units.push_back(new_saving(*gpus_[unit.leader], clock_.now(), depth));
  for (Record& record : records_) {
    const auto at = static_cast<std::size_t>(record.gpu);
    const StepUnit* unit = unit_of(at);
    if (unit == nullptr)
      record.saving = new_saving(*gpus_[at], record.time, depth);
    else if (const auto& saving = of_units[static_cast<std::size_t>(unit - units_.data())])
      record.saving = member_saving(*unit, at, *saving);
  }
}

std::span<const Record> Governor::tick(ReadDepth depth) {
  records_.clear();
  form_units();
  // All GPUs begin to read before the first is waited for: they answer side by side.
  const std::vector<bool> now = all_due(depth);
  for (std::size_t i = 0; i < gpus_.size(); ++i)
    if (now[i]) gpus_[i]->sampler.start(depth);
  for (std::size_t i = 0; i < gpus_.size(); ++i)
    if (now[i]) read(*gpus_[i], i, depth);
  Fraction busy{0};
  for (const auto& state : gpus_)
    if (!state->gpu.observed) busy += state->busy;
  for (Record& record : records_) record.estimate.node_gpu_utilisation = busy;
  for (StepUnit& unit : units_)
    if (now[unit.leader]) decide(unit);
  for (Record& record : records_) {
    const auto at = static_cast<std::size_t>(record.gpu);
    decide(*gpus_[at], record, unit_of(at));
  }
  add_savings(depth);
  return records_;
}

std::vector<Forecast> Governor::forecast(std::size_t at, std::span<const double> deltas) const {
  const StepUnit* unit = unit_of(at);
  const GovernedGpu& gpu = gpus_[unit != nullptr ? unit->leader : at]->gpu;
  return forecasts(*gpu.policy, deltas, gpu.envelope);
}

void Governor::read_counter_next(std::size_t at) { gpus_[at]->sampler.want_counter(); }

void Governor::add(GovernedGpu gpu) { gpus_.push_back(make_state(std::move(gpu))); }

std::optional<JournalHandle> Governor::unrestored(std::size_t at) const {
  const auto& handle = gpus_[at]->actuator.journal_handle();
  const bool any = handle && (handle->entry.clock_written || handle->entry.power_written);
  return any ? handle : std::nullopt;
}

std::optional<JournalHandle> Governor::replace(std::size_t at, GovernedGpu gpu) {
  leave_unit(at);
  auto left = unrestored(at);
  gpus_[at]->actuator.abandon();
  gpus_[at] = make_state(std::move(gpu));
  return left;
}

Result<void> Governor::restore(std::size_t at) { return gpus_[at]->actuator.restore(); }

Result<void> Governor::restore() {
  std::optional<Error> failure;
  for (const auto& state : gpus_) {
    auto restored = state->actuator.restore();
    if (restored.ok()) continue;
    Error error = std::move(restored).error();
    const std::string& uuid = state->gpu.source->capability().id.uuid;
    if (error.message.find(uuid) == std::string::npos) error.message = uuid + ": " + error.message;
    if (!failure)
      failure = std::move(error);
    else
      failure->message += "; " + error.message;
  }
  if (failure) return *std::move(failure);
  return {};
}

}  // namespace derate
