#include "worker.h"

#include <algorithm>

#include "base/json.h"
#include "config/setting_list.h"
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

FleetOptions with_parts(FleetOptions options, ModelCacheProvider& models, EventDetector& events) {
  options.models = &models;
  options.on_audit = [&events](const AuditEntry& entry) { events.take(entry); };
  return options;
}

HistoryService::Options history_options(const WorkerOptions& all) {
  HistoryService::Options out = logging_to(all, all.history);
  out.where = all.stores;
  return out;
}

EventLog::Options event_options(const WorkerOptions& all, HistoryService& history) {
  EventLog::Options out = logging_to(all, all.events);
  out.keep = [&history](const Event& event) { history.take(event); };
  return out;
}

// Instances are told to `rows`, too: what is attributed does not have their profiles.
AttributionService::Options attribution_options(const WorkerOptions& all, HistoryService& history,
                                                TenantRows& rows) {
  AttributionService::Options out = logging_to(all, all.attribution);
  out.on_tick = [&history](const AttributedTick& tick) { history.take(tick); };
  out.on_reading = [&rows, also = std::move(out.on_reading)](
                       const GpuId& gpu, const Tenancy& tenancy, const TenantNames& names,
                       const ClockSummary& watched) {
    rows.read(gpu, tenancy);
    also(gpu, tenancy, names, watched);
  };
  return out;
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
      history_(clock, history_options(options)),
      events_(clock, event_options(options, history_)),
      detector_(clock, [this](Event event) { events_.add(std::move(event)); }),
      models_(
          options.models, clock,
          [log = log_](const Error& error) { log.warning("models of work: " + error.message); },
          options.stores),
      fleet_(with_parts(options.fleet, models_, detector_), settings, clock),
      commands_(clock, fleet_, operators_, log_, options.fleet.audit),
      roles_(settings, log_),
      tokens_(options.token_file, clock, log_),
      token_service_(clock, tokens_, commands_.commands(), operators_, options.fleet.audit, log_),
      config_(clock, commands_.commands(), operators_,
              {.source = options.config,
               .in_force = [this]() -> const Settings& { return fleet_.settings(); },
               .reload = [this](const Settings& changed) { reload(changed); },
               .ungovernable =
                   [this](const Settings& wanted) { return fleet_.ungovernable_under(wanted); },
               .audit = options.fleet.audit,
               .log = log_}),
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
      forecasts_(clock, fleet_, clients_),
      advice_(clock, fleet_, clients_),
      totals_(held_for(settings)),
      tenant_rows_(options.tenant_rows),
      daemon_(clock),
      attribution_(clock, attribution_options(options, history_, tenant_rows_), std::nullopt),
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
    totals_.take(each);
    advice_.take(each);
    detector_.take(each);
    history_.take(each);
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
  tell_pauses();
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
  tell_pauses();
  if (fleet_.is_open()) round();
  attribute();
  energy_.settle();
  tune_.step();
  if (!events_.is_numbered())
    if (const auto last = history_.last_event()) events_.number_after(*last);
  history_.step();
  show();
  return {};
}

// Once a second, as a snapshot copies all that is known. While the GPUs are being opened it has
// none of them, and says that the loop goes on.
void Worker::show() {
  const bool has_gpus = commands_.paused() || fleet_.is_open();
  if (has_gpus && !state_.due()) return;
  take_snapshot(has_gpus ? Figures::counted_anew : Figures::as_before);
  if (has_gpus) state_.publish(*board_.latest());
}

void Worker::round() {
  const bool began = !fleet_.gpus().empty() && fleet_.gpus().front().last;
  const Duration late = clock_.now() - fleet_.next_due();
  fleet_.set_work(steps_.with_steps(work_.update(work_gpus()), clock_.now(), work_, fleet_.gpus()));
  runs_.step();
  for (const std::string& uuid : energy_.take_wanted()) fleet_.read_counter_next(uuid);
  for (const std::string& uuid : history_.take_wanted()) fleet_.read_counter_next(uuid);
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
    detector_.closed();
    history_.closed();
  }
  std::vector<TuneGpu> gpus;
  for (const ManagedGpu& gpu : fleet_.gpus())
    gpus.push_back(tune_gpu(gpu.open.source->capability()));
  energy_.here(fleet_.ids());
  tune_.here(std::move(gpus));
}

void Worker::tell(EventKind kind, std::string message, EventFields fields) {
  events_.add({.kind = kind, .message = std::move(message), .fields = std::move(fields)});
}

void Worker::tell_pauses() {
  if (commands_.paused() && !std::exchange(paused_, true))
    tell(EventKind::paused, "derated is paused: all GPUs are given back",
         {{"who", commands_.paused_by()}});
  if (commands_.paused() || !fleet_.is_open()) return;
  EventFields fields{{"gpus", std::to_string(fleet_.gpus().size())}};
  if (!std::exchange(started_, true))
    tell(EventKind::started, "derated has its GPUs", std::move(fields));
  else if (std::exchange(paused_, false))
    tell(EventKind::resumed, "derated has its GPUs again", std::move(fields));
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
  Snapshot now{.beats = work_.beats(), .time = clock_.now(), .paused = commands_.paused()};
  for (const ManagedGpu& gpu : fleet_.gpus()) {
    auto known = snapshot_of(gpu, fleet_.bounds().of(gpu.uuid(), clock_.now()));
    if (!known) continue;
    known->totals = totals_.of(gpu.uuid());
    now.gpus.push_back(*std::move(known));
  }
  for (const auto& [uuid, row] : totals_.rows())
    if (fleet_.find(uuid) == nullptr) now.away.push_back({row.id, row.meter.totals()});
  now.loop = loop == Figures::counted_anew ? lateness_.figures() : board_.latest()->loop;
  now.attributes = attribution_.enabled();
  now.attribution = attribution_.pictures();
  tenant_rows_.take(now.attribution, clock_.now());
  now.tenants = tenant_rows_.tables();
  now.daemon = daemon_.figures();
  now.history = history_.figures();
  board_.publish(std::move(now));
}

void Worker::take_settings() {
  const Settings& settings = fleet_.settings();
  roles_.take(settings);
  dcgm_names_ = settings.metrics_dcgm_names;
  work_.rules(settings);
  work_.list_every(from_seconds(settings.processes_every_s));
  energy_.windows().set_max_gap(held_for(settings));
  totals_.set_max_gap(held_for(settings));
  tune_.rules(tune_rules(settings));
  runs_.rules(run_rules(settings));
  attribution_.rules(attributes_ ? attribution_service_rules(settings) : std::nullopt);
  history_.rules(settings);
}

void Worker::reload(const Settings& settings) {
  const std::string changed = changed_keys(fleet_.settings(), settings);
  fleet_.reload(settings);
  if (!changed.empty())
    tell(EventKind::config_changed, "another configuration is in force", {{"settings", changed}});
  take_settings();
  take_snapshot(Figures::as_before);
}

Result<std::string> Worker::reload_files() {
  tokens_.load();
  return config_.reload();
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
  EventFields fields;
  if (!restored.ok()) fields.emplace_back("not_restored", restored.error().message);
  tell(EventKind::stopped, "derated ends", std::move(fields));
  attribution_.stop();
  history_.stop();
  return restored;
}

}  // namespace derate::cli
