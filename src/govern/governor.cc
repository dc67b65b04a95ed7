#include "govern/governor.h"

#include "govern/envelope_rule.h"

#include <algorithm>
#include <utility>

namespace derate {
namespace {

// The share of a core that the expensive fields of an observed GPU may take.
constexpr double kObservedDriverShare = 0.0008;

}  // namespace

Governor::Governor(std::vector<GovernedGpu> gpus, Clock& clock, const GovernorOptions& options)
    : clock_(clock), options_(options), suspended_(clock.suspended()) {
  for (GovernedGpu& gpu : gpus) add(std::move(gpu));
}

std::unique_ptr<Governor::GpuControlState> Governor::make_state(GovernedGpu gpu) const {
  const Capability& capability = gpu.source->capability();
  const DriftRule on_drift = gpu.as_published ? DriftRule::ignore : gpu.on_drift;
  PolicySeat seat{std::move(gpu.policy)};
  SamplerOptions sampling = options_.sampling;
  if (gpu.observed)
    sampling.driver_share = std::min(sampling.driver_share, kObservedDriverShare);
  else
    sampling.idle_driver_share = sampling.driver_share;  // work that begins is read at once
  Sampler sampler(*gpu.source, clock_, sampling, seat.policy->needs());
  Safety safety(options_.rules, gpu.envelope, gpu.as_published);
  // An envelope that the administrator has narrowed holds at rest, too.
  const auto usual = make_envelope(capability);
  if (usual.ok() && gpu.envelope.highest() == usual->highest() &&
      gpu.envelope.lowest() <= usual->lowest())
    safety.allow_own_rest();
  ActuatorOptions writes{.supported = capability.sm_clocks,
                         .minimum_is_a_request = capability.architecture == Architecture::blackwell,
                         .on_drift = on_drift,
                         .journal_handle = std::move(gpu.journal_handle)};
  if (capability.memory_lock && options_.rules.park_memory_after > Duration::zero()) {
    writes.parked_memory = capability.memory_clocks.front();
    safety.allow_memory_rest(*writes.parked_memory);
  }
  Actuator actuator(gpu.control, std::move(writes));
  const Schedule schedule{gpu.tick};
  Estimator estimator(options_.rules, capability, gpu.as_published);
  return std::unique_ptr<GpuControlState>(
      new GpuControlState{std::move(gpu), std::move(seat), schedule, std::move(sampler),
                          std::move(estimator), std::move(safety), std::move(actuator)});
}

// Policies that run as published decide for one GPU, as they did.
std::vector<GroupGpu> Governor::group_gpus() {
  std::vector<GroupGpu> out;
  for (const auto& state : gpus_) {
    const GovernedGpu& gpu = state->gpu;
    const bool alone = gpu.observed || gpu.as_published;
    out.push_back({.seat = &state->seat,
                   .policy_key = alone ? std::string_view() : gpu.policy_key,
                   .envelope = &gpu.envelope,
                   .work = &state->work,
                   .tick = gpu.tick,
                   .dry_run = gpu.control == nullptr,
                   .locked = state->actuator.locked(),
                   .bounds = state->bounds});
  }
  return out;
}

// GPUs of one leader have their ticks together.
std::vector<bool> Governor::all_due(ReadDepth depth) {
  std::vector<bool> out(gpus_.size());
  for (std::size_t at = 0; at < gpus_.size(); ++at)
    if (groups_.leader_of(at) == at)
      out[at] = take_due(gpus_[at]->schedule, clock_.now()) || depth == ReadDepth::all;
  for (std::size_t at = 0; at < gpus_.size(); ++at) {
    const std::size_t leader = groups_.leader_of(at);
    out[at] = out[leader];
    gpus_[at]->schedule.next = gpus_[leader]->schedule.next;
  }
  return out;
}

Instant Governor::next_due() const {
  Instant next = Instant::max();
  for (const auto& state : gpus_)
    next = std::min(next, state->schedule.next.value_or(clock_.now()));
  return next;
}

// An observed GPU without work is read once a second where reading it costs something: nobody
// decides anything by it.
void Governor::pace_observed(GpuControlState& state, const std::optional<Sample>& sample) const {
  constexpr std::chrono::seconds kIdleFor(10), kIdlePeriod(1);
  const Instant now = clock_.now();
  if (!sample || sample->gpu_utilisation != Fraction(0)) state.worked = now;
  if (!state.worked) state.worked = now;
  const auto costs = state.gpu.source->costs();
  const bool costly = costs != nullptr && costs->mean(DriverCall::sensors) >= kCostlySensors;
  const bool idle = costly && now - *state.worked >= kIdleFor;
  const Duration before = state.schedule.period;
  state.schedule.period = idle ? std::max<Duration>(state.gpu.tick, kIdlePeriod) : state.gpu.tick;
  if (state.schedule.period < before) state.schedule.next = now + state.gpu.tick;
}

void Governor::read(GpuControlState& state, std::size_t at, ReadDepth depth) {
  Reading reading = state.sampler.sample(depth);
  Record record;
  record.time = clock_.now();
  record.gpu = static_cast<int>(at);
  record.estimate = state.estimator.estimate(
      reading, state.work, {state.actuator.locked(), state.actuator.memory_lock()}, clock_.now());
  record.sample = std::move(reading.fresh);
  if (reading.failure) {
    record.sample_failure = reading.failure->code;
    record.sample_error = std::move(reading.failure->message);
  }
  state.busy = record.estimate.gpu_utilisation.value_or(Fraction(0));
  if (state.gpu.observed) pace_observed(state, record.sample);
  records_.push_back(std::move(record));
}

void Governor::bound(GpuControlState& state, Record& record, GroupGpu& gpu) {
  state.safety.bound(std::move(gpu.bounds));
  gpu.allowed = &state.safety.envelope(record.estimate);
  const auto bounds = intersect(state.safety.bounds(), kClockLock, record.estimate.time);
  if (bounds.least != nullptr) record.bounded_below = *bounds.least;
  if (bounds.most != nullptr) record.bounded_above = *bounds.most;
}

void Governor::act(GpuControlState& state, Record& record, const GroupGpu& gpu) {
  options_.alive();
  if (record.estimate.freshness != Freshness::fresh)
    record.decision = Decision::hold({"no fresh reading", {}});
  else
    record.decision =
        gpu.decision ? *gpu.decision : state.seat.policy->decide(record.estimate, *gpu.allowed);
  if (gpu.pace) record.pace = static_cast<int>(*gpu.pace);
  record.clamped = state.safety.clamp(record.decision, record.estimate, state.actuator.locked());
  record.actuation = state.actuator.apply(record.clamped.decision, record.estimate);
  if (state.actuator.refuses_memory()) state.safety.forbid_memory_rest();
}

void Governor::note_suspension() {
  constexpr std::chrono::milliseconds kShortest(500);  // the two clocks are not read at once
  const Duration before = std::exchange(suspended_, clock_.suspended());
  if (suspended_ - before < kShortest) return;
  options_.resumed(suspended_ - before);
  for (const auto& state : gpus_) state->actuator.doubt_settings();
}

std::span<const Record> Governor::tick(ReadDepth depth) {
  records_.clear();
  note_suspension();
  std::vector<GroupGpu> gpus = group_gpus();
  groups_.gather(gpus);
  // All GPUs begin to read before the first is waited for: they answer side by side.
  const std::vector<bool> now = all_due(depth);
  for (std::size_t at = 0; at < gpus_.size(); ++at)
    if (now[at]) gpus_[at]->sampler.start(depth);
  for (std::size_t at = 0; at < gpus_.size(); ++at)
    if (now[at]) read(*gpus_[at], at, depth);
  Fraction busy{0};
  for (const auto& state : gpus_)
    if (!state->gpu.observed) busy += state->busy;
  const auto of = [](const Record& record) { return static_cast<std::size_t>(record.gpu); };
  for (Record& record : records_) {
    record.estimate.node_gpu_utilisation = busy;
    gpus[of(record)].estimate = &record.estimate;
  }
  groups_.bound(gpus);
  for (Record& record : records_) bound(*gpus_[of(record)], record, gpus[of(record)]);
  groups_.decide(gpus);
  for (Record& record : records_) act(*gpus_[of(record)], record, gpus[of(record)]);
  groups_.add_savings(records_, gpus,
                      depth == ReadDepth::all ? TakeSaving::now : TakeSaving::when_due);
  return records_;
}

std::vector<Forecast> Governor::forecast(std::size_t at, std::span<const double> deltas) const {
  const GpuControlState& leader = *gpus_[groups_.leader_of(at)];
  return forecasts(*leader.seat.policy, deltas, leader.gpu.envelope);
}

void Governor::read_counter_next(std::size_t at, CounterNeed need) {
  gpus_[at]->sampler.want_counter(need);
}

void Governor::add(GovernedGpu gpu) { gpus_.push_back(make_state(std::move(gpu))); }

std::optional<JournalHandle> Governor::unrestored(std::size_t at) const {
  const auto& handle = gpus_[at]->actuator.journal_handle();
  const bool any = handle && (handle->entry.any_written() || handle->over);
  return any ? handle : std::nullopt;
}

std::optional<JournalHandle> Governor::replace(std::size_t at, GovernedGpu gpu) {
  groups_.leave(at, group_gpus());
  auto left = unrestored(at);
  gpus_[at]->actuator.abandon();
  gpus_[at] = make_state(std::move(gpu));
  return left;
}

Result<void> Governor::restore(std::size_t at) { return gpus_[at]->actuator.restore(); }

Result<void> Governor::restore() {
  std::optional<Error> failure;
  const auto add = [&](const GpuControlState& state, Result<void> restored) {
    if (restored.ok()) return;
    Error error = std::move(restored).error();
    const std::string& uuid = state.gpu.source->capability().id.uuid;
    if (error.message.find(uuid) == std::string::npos) error.message = uuid + ": " + error.message;
    if (!failure)
      failure = std::move(error);
    else
      failure->message += "; " + error.message;
  };
  for (const auto& state : gpus_) {
    options_.alive();
    add(*state, state->actuator.restore_device());
  }
  // Journals come last: a disk that does not answer must not delay the restore of a GPU.
  for (const auto& state : gpus_) add(*state, state->actuator.close_journal());
  if (failure) return *std::move(failure);
  return {};
}

}  // namespace derate
