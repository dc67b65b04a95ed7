#include "worker.h"

#include <algorithm>

#include "base/json.h"
#include "core/chip_facts.h"

namespace derate::cli {
namespace {

// Leases of trials, windows of energy, attribution and the state file cannot wait for a GPU that is
// read each minute.
constexpr Duration kLongestWait = std::chrono::seconds(1);

// A reading of the power is held for two of the rounds that it is taken in, or a sampler's gap.
Duration held_for(const Settings& settings) {
  constexpr Duration kLeast = std::chrono::seconds(2);
  return std::max(kLeast, from_seconds(2 * settings.observe_every_s));
}

TuneRules tune_rules(const Settings& settings) {
  return {settings.tune_users == "everyone", from_seconds(settings.tune_lease_s)};
}

template <class Options>
Options logging_to(const WorkerOptions& all, Options options) {
  options.log = all.fleet.log;
  return options;
}

FleetOptions with_models(FleetOptions options, ModelCacheProvider& models) {
  options.models = &models;
  return options;
}

TuneGpu tune_gpu(const Capability& capability) {
  const ChipFacts* facts = facts_of_product(capability.id.name);
  // What was learned on a simulated GPU is never taken for real.
  TuneGpu out{capability.id,
              (is_simulated(capability.id) ? "simulated " : "") +
                  (facts != nullptr ? std::string(facts->chip) : capability.id.name),
              {}};
  if (capability.power_limits) out.highest_limit = capability.power_limits->highest;
  return out;
}

}  // namespace

Worker::Worker(WorkerOptions options, const Settings& settings, Clock& clock)
    : log_(options.fleet.log),
      clock_(clock),
      state_(clock, "derated", log_, options.state_file),
      models_(
          options.models, clock,
          [log = log_](const Error& error) { log.warning("models of work: " + error.message); },
          options.stores),
      fleet_(with_models(options.fleet, models_), settings, clock),
      commands_(clock, fleet_, operators_, log_),
      work_(clock, logging_to(options, options.tracker)),
      energy_(clock, clients_, held_for(settings)),
      tune_(clock, clients_, energy_,
            {.file = options.tune_file,
             .rules = tune_rules(settings),
             .log = log_,
             .works_on = [this](const std::string& gpu,
                                std::uint32_t uid) { return work_.works_on(gpu, uid); },
             .gpus = &fleet_,
             .where = options.stores}),
      runs_(clock, clients_, fleet_,
            {.users = [this](const std::string& gpu) { return work_.users_of(gpu); },
             .below = [this](const std::string& gpu,
                             std::int64_t pid) { return work_.works_below(gpu, pid); }},
            log_),
      attribution_(clock, logging_to(options, options.attribution), std::nullopt),
      attributes_(options.attribution.name != nullptr) {
  attribution_.jobs([this](std::int64_t pid) { return work_.job_of(pid); });
  clients_.add<AttributionRead>([this](const AttributionRead& request, const Peer&) {
    return attribution_page(*board_.latest(), request.after);
  });
  fleet_.add_sink([this](const GpuRecord& each) {
    if (!each.record.sample) return;
    energy_.take(each.gpu.uuid(), *each.record.sample);
    attribution_.watch(each.gpu.uuid(), *each.record.sample);
  });
  fleet_.add_sink([this](const GpuRecord& each) {
    // What a dry run would save was not saved.
    const PolicyAssignment* by = each.gpu.policy();
    const bool dry_run = by != nullptr && by->dry_run;
    if (each.record.saving && !dry_run) attribution_.saved(each.gpu.uuid(), *each.record.saving);
  });
  for (RecordSink& sink : options.sinks) fleet_.add_sink(std::move(sink));
  take_settings();
  fleet_.begin_opening();
}

Instant Worker::next_due() {
  if (!commands_.queue().empty()) return clock_.now();
  return std::min(fleet_.next_due(), clock_.now() + kLongestWait);
}

// state.json is new before the answers come: who asked wants to see it there.
void Worker::obey() {
  if (!commands_.drain()) return;
  take_changes();
  take_snapshot(Figures::counted_anew);
  state_.publish(*board_.latest());
  commands_.answer();
}

Result<void> Worker::step() {
  obey();
  if (auto opened = fleet_.poll_opening(); !opened.ok()) {
    if (fleet_.changes() == 0) return opened;  // at the start
    log_.error("cannot open the GPUs: " + opened.error().message);
  }
  take_changes();
  if (fleet_.is_open()) round();
  attribute();
  energy_.settle();
  tune_.step();
  const bool shown = (commands_.paused() || fleet_.is_open()) && state_.due();
  take_snapshot(shown ? Figures::counted_anew : Figures::as_before);
  if (shown) state_.publish(*board_.latest());
  return {};
}

void Worker::round() {
  const bool began = !fleet_.gpus().empty() && fleet_.gpus().front().last;
  const Duration late = clock_.now() - fleet_.next_due();
  fleet_.set_work(work_.update(work_gpus()));
  runs_.step();
  for (const std::string& uuid : energy_.take_wanted()) fleet_.read_counter_next(uuid);
  if (fleet_.tick() > 0 && began) lateness_.add(std::max(Duration{}, late));
  work_.begin_listing(work_gpus());
  fleet_.maintain();
}

// Which GPUs are open now, to whoever measures.
void Worker::take_changes() {
  if (std::exchange(seen_, fleet_.changes()) == fleet_.changes()) return;
  if (!fleet_.is_open()) {
    // What was begun of the sources that are closed is not asked of those that come next.
    (void)work_.update({});
    attribution_.step({});
    tune_.release_gpus();
    runs_.closed();
  }
  std::vector<TuneGpu> gpus;
  for (const ManagedGpu& gpu : fleet_.gpus())
    gpus.push_back(tune_gpu(gpu.open.source->capability()));
  energy_.here(fleet_.ids());
  tune_.here(std::move(gpus));
}

std::vector<WorkloadTracker::Gpu> Worker::work_gpus() const {
  std::vector<WorkloadTracker::Gpu> out;
  for (const ManagedGpu& gpu : fleet_.gpus()) {
    out.push_back({gpu.open.source.get(), gpu.opening});
    if (const PolicyAssignment* by = gpu.policy())
      out.back().policy_delta = policy_delta(by->policy);
  }
  return out;
}

void Worker::attribute() {
  std::vector<AttributionService::Gpu> gpus;
  for (const ManagedGpu& gpu : fleet_.gpus()) gpus.push_back({gpu.open.source.get(), gpu.opening});
  attribution_.step(gpus);
}

void Worker::take_snapshot(Figures loop) {
  Snapshot now{.beats = work_.beats(), .paused = commands_.paused()};
  for (const ManagedGpu& gpu : fleet_.gpus())
    if (auto known = snapshot_of(gpu, fleet_.bounds().of(gpu.uuid(), clock_.now())))
      now.gpus.push_back(*std::move(known));
  now.loop = loop == Figures::counted_anew ? lateness_.figures() : board_.latest()->loop;
  now.attributes = attribution_.enabled();
  now.attribution = attribution_.pictures();
  board_.publish(std::move(now));
}

void Worker::take_settings() {
  const Settings& settings = fleet_.settings();
  work_.rules(settings);
  work_.list_every(from_seconds(settings.processes_every_s));
  energy_.windows().set_max_gap(held_for(settings));
  tune_.rules(tune_rules(settings));
  runs_.rules(run_rules(settings));
  attribution_.rules(attributes_ ? attribution_service_rules(settings) : std::nullopt);
}

void Worker::reload(const Settings& settings) {
  fleet_.reload(settings);
  take_settings();
  take_snapshot(Figures::as_before);
}

// The GPUs come before what the services have left to write.
Worker::~Worker() {
  if (!stopped_) (void)fleet_.finish().ok();
}

void Worker::refuse_commands() {
  commands_.queue().refuse({Errc::busy, "derated ends"});
  commands_.answer();
}

Result<void> Worker::stop() {
  stopped_ = true;
  auto restored = fleet_.finish();  // the GPUs come first
  attribution_.stop();
  return restored;
}

}  // namespace derate::cli
