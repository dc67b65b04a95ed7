#include "worker.h"

#include <fmt/format.h>

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
  return std::max(kLeast, from_seconds(2 * settings.observer.every_s));
}

TuneRules tune_rules(const Settings& settings) {
  return {settings.tune.users == "everyone", from_seconds(settings.tune.lease_s)};
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

AllocationService::Options allocation_options(const WorkerOptions& all) {
  AllocationService::Options out = logging_to(all, all.allocations);
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

// An earlier process has left something to be restored, or that is not known.
bool has_entries(const FleetOptions& fleet) {
  if (!fleet.journal) return false;
  const auto left = fleet.journal->read(fleet.life);
  return !left.ok() || !left->entries.empty();
}

// Known while energy is attributed, which reads the instances.
InstanceGpus instance_gpus(const TenantRows& rows) {
  InstanceGpus out;
  for (const auto& [uuid, instances] : rows.instances())
    for (const GpuInstance& instance : instances)
      if (!instance.uuid.empty()) out[instance.uuid] = uuid;
  return out;
}

// The energy since the daemon first saw the GPU; empty: not known.
std::optional<Joules> energy_of(const GpuTotalsTable& totals, const std::string& uuid) {
  const auto found = totals.of(uuid);
  return found ? found->energy : std::nullopt;
}

TuneGpu tune_gpu(const Capability& capability) {
  const ChipFacts* facts = facts_of_product(capability.id.name);
  // What was learned on a simulated GPU is never taken for real.
  TuneGpu out{capability.id,
              (is_simulated(capability.id) ? "simulated " : "") +
                  (facts != nullptr ? std::string(facts->chip) : capability.id.name) +
                  modes_key(capability.modes),
              {}};
  if (capability.power_limits) out.highest_limit = capability.power_limits->highest;
  return out;
}

}  // namespace

Worker::Records::Records(const WorkerOptions& options, const Settings& settings, Clock& clock)
    : state(clock, "derated", options.fleet.log, options.state_file),
      history(clock, history_options(options)),
      events(clock, event_options(options, history)),
      detector(clock, [this](Event event) { events.add(std::move(event)); }),
      totals(held_for(settings)),
      tenants(options.tenant_rows),
      daemon(clock) {}

Worker::Answers::Answers(Worker& all, const WorkerOptions& options, const Settings& settings)
    : fleet(all.clock_, all.fleet_, all.desk_.operators, all.log_, options.fleet.audit),
      tokens(all.clock_, all.callers_.tokens, all.desk_.operators, options.fleet.audit, all.log_),
      config(all.clock_, all.desk_.operators,
             {.source = options.config,
              .in_force = [&all]() -> const Settings& { return all.fleet_.settings(); },
              .reload = [&all](const Settings& changed) { all.reload(changed); },
              .warnings_of =
                  [&all](const Settings& wanted) { return all.fleet_.warnings_under(wanted); },
              .audit = options.fleet.audit,
              .log = all.log_}),
      energy(all.clock_, all.desk_.clients, held_for(settings)),
      tune(all.clock_, all.desk_.clients, energy,
           {.file = options.tune_file,
            .rules = tune_rules(settings),
            .log = all.log_,
            .works_on = std::bind_front(&WorkloadTracker::works_on, &all.work_.tracker),
            .person = options.tracker.person,
            .gpus = &all.fleet_,
            .where = options.stores}),
      runs(all.clock_, all.desk_.clients, all.fleet_,
           {.users = std::bind_front(&WorkloadTracker::users_of, &all.work_.tracker),
            .below = std::bind_front(&WorkloadTracker::works_below, &all.work_.tracker),
            .others = std::bind_front(&WorkloadTracker::others_work_on, &all.work_.tracker),
            .begun_by = std::bind_front(&WorkloadTracker::begun_by, &all.work_.tracker)},
           all.log_),
      allocations(all.clock_, all.desk_.operators, all.desk_.clients, energy, all.fleet_,
                  allocation_options(options)),
      pods(all.clock_, all.fleet_, logging_to(options, options.pods)),
      services(all.clock_, all.fleet_, all.desk_.operators, all.desk_.clients,
               {.energy = [&totals = all.records_.totals](
                              const std::string& uuid) { return energy_of(totals, uuid); },
                .tell = std::bind_front(&Worker::tell, &all),
                .log = all.log_}),
      forecasts(all.clock_, all.fleet_, all.desk_.clients),
      advice(all.clock_, all.fleet_, all.desk_.clients),
      attribution(all.clock_,
                  attribution_options(options, all.records_.history, all.records_.tenants),
                  std::nullopt) {
  attribution.jobs(std::bind_front(&WorkloadTracker::job_of, &all.work_.tracker));
  all.desk_.clients.add<AttributionRead>(
      [&board = all.records_.board](const AttributionRead& request, const Peer&) {
        return attribution_page(*board.latest(), request.after);
      });
}

Worker::Worker(WorkerOptions options, const Settings& settings, Clock& clock)
    : log_(options.fleet.log),
      clock_(clock),
      records_(options, settings, clock),
      models_(
          options.models, clock,
          [log = log_](const Error& error) { log.warning("models of work: " + error.message); },
          options.stores),
      fleet_(with_parts(options.fleet, models_, records_.detector), settings, clock),
      sleep_(options.sleep, clock),
      desk_(clock, log_),
      callers_{{settings, log_},
               {options.token_file, clock, log_, options.stores},
               {options.fleet.audit, log_}},
      work_{{clock, logging_to(options, options.tracker)}},
      answers_(*this, options, settings),
      attributes_(options.attribution.name != nullptr) {
  add_sinks(std::move(options.sinks));
  desk_.client_lines.refuse([this](const Peer& peer) -> std::optional<Error> {
    if (is_heard(peer.uid, "client.sock")) return std::nullopt;
    return Error{
        Errc::no_permission,
        fmt::format("{} is derate-agent's user, which may use api.sock alone", caller_name(peer))};
  });
  // Only callers over HTTP have a role.
  desk_.clients.on_refused([this](const Peer& peer, const std::string& why) {
    callers_.refusals.add(peer.role ? "api.sock" : "client.sock", caller_name(peer), why);
  });
  for (CommandRouter* router : {&desk_.operators, &desk_.clients})
    router->on_handle([this](const Operation& operation) {
      // Metrics come whether somebody uses a GPU or not.
      const bool reports = operation.name == std::string_view(ServiceReport::kOperation);
      if (operation.changes >= Changes::own && !reports) sleep_.wake();
    });
  take_settings();
  const bool owes = has_entries(options.fleet);
  if (owes || !sleep_.begin_asleep(options.bus_ids)) fleet_.begin_opening();
}

// The agent sends other users' requests over the API's socket. Its user is refused on all other
// sockets, so an attacker who takes over the agent gains nothing there.
bool Worker::is_heard(uid_t uid, const char* door) {
  const Peer peer{.uid = uid};
  if (callers_.roles.of(peer) != Role::agent) return true;
  callers_.refusals.add(door, caller_name(peer), "derate-agent's user may not use this socket");
  return false;
}

void Worker::add_sinks(std::vector<RecordSink> others) {
  fleet_.add_sink([this](const GpuRecord& each) {
    if (!each.record.sample) return;
    answers_.energy.take(each.gpu.uuid(), *each.record.sample);
    answers_.attribution.watch(each.gpu.uuid(), *each.record.sample);
  });
  fleet_.add_sink([this](const GpuRecord& each) {
    // What a dry run would save was not saved.
    const PolicyAssignment* by = each.gpu.policy();
    const bool dry_run = by != nullptr && by->dry_run;
    if (each.record.saving && !dry_run)
      answers_.attribution.saved(each.gpu.uuid(), *each.record.saving);
    records_.totals.take(each);
    answers_.advice.take(each);
    records_.detector.take(each);
    records_.history.take(each);
  });
  for (RecordSink& sink : others) fleet_.add_sink(std::move(sink));
}

Instant Worker::next_due() {
  // Counted from the last round: however often it is looked at, the next one comes.
  constexpr std::chrono::milliseconds kWakingRound(50);
  const Instant latest = course_.stepped + kLongestWait;
  if (desk_.queue.has_for_round())
    return is_waking() ? course_.stepped + kWakingRound : clock_.now();
  return sleep_.closed() ? latest : std::min(fleet_.next_due(), latest);
}

// state.json is new before the answers come: who asked wants to see it there.
void Worker::obey() {
  if (desk_.queue.has_for_round()) sleep_.wake();
  if (is_waking()) return;
  if (!desk_.queue.do_round()) return;
  take_changes();
  tell_pauses();
  take_snapshot(Figures::counted_anew);
  records_.state.publish(*records_.board.latest());
  desk_.queue.answer_round();
}

Result<void> Worker::step() {
  course_.stepped = clock_.now();
  obey();
  if (auto opened = fleet_.poll_opening(); !opened.ok()) {
    if (fleet_.changes() == 0 && !course_.waking) return opened;  // at the start
    log_.error("cannot open the GPUs: " + opened.error().message);
  }
  let_sleep();
  take_changes();
  tell_pauses();
  tell_lost_policies();
  if (fleet_.is_open()) round();
  attribute();
  answers_.tokens.step();
  callers_.refusals.write(clock_);
  answers_.energy.settle();
  answers_.tune.step();
  if (!records_.events.is_numbered())
    if (const auto last = records_.history.last_event()) records_.events.number_after(*last);
  records_.history.step();
  records_.events.settle();
  show();
  return {};
}

// Once a second, as a snapshot copies all that is known. While the GPUs are being opened it has
// none of them, and says that the loop goes on.
void Worker::show() {
  const bool has_gpus = answers_.fleet.paused() || running() || course_.waking;
  if (has_gpus && !records_.state.due()) return;
  take_snapshot(has_gpus ? Figures::counted_anew : Figures::as_before);
  if (has_gpus) records_.state.publish(*records_.board.latest());
}

void Worker::round() {
  const bool began = !fleet_.gpus().empty() && fleet_.gpus().front().last;
  const Duration late = clock_.now() - fleet_.next_due();
  auto work = work_.steps.with_steps(work_.tracker.update(work_gpus()), clock_.now(), work_.tracker,
                                     fleet_.gpus());
  fleet_.set_work(answers_.services.with_services(std::move(work), work_.tracker.tenants()));
  answers_.runs.step();
  answers_.allocations.step();
  answers_.pods.step(instance_gpus(records_.tenants));
  answers_.services.step();
  for (const std::string& uuid : answers_.energy.take_wanted()) fleet_.read_counter_next(uuid);
  for (const std::string& uuid : records_.history.take_wanted())
    fleet_.read_counter_next(uuid, CounterNeed::if_cheap);
  if (began) records_.detector.begin_round(clock_.now(), late);
  if (fleet_.tick() > 0 && began) records_.lateness.add(std::max(Duration{}, late));
  records_.detector.settle(clock_.now());
  work_.tracker.begin_listing(work_gpus());
  fleet_.maintain();
}

// Which GPUs are open now, to whoever measures.
void Worker::take_changes() {
  if (std::exchange(course_.changes, fleet_.changes()) == fleet_.changes()) return;
  if (!fleet_.is_open()) {
    // What was begun of the sources that are closed is not asked of those that come next.
    (void)work_.tracker.update({});
    answers_.attribution.step({});
    answers_.tune.release_gpus();
    answers_.runs.closed();
    records_.detector.closed();
    records_.history.closed();
  }
  std::vector<TuneGpu> gpus;
  for (const ManagedGpu& gpu : fleet_.gpus())
    gpus.push_back(tune_gpu(gpu.open.source->capability()));
  answers_.energy.here(fleet_.ids());
  answers_.tune.here(std::move(gpus));
}

void Worker::tell(EventKind kind, std::string message, EventFields fields) {
  records_.events.add({.kind = kind, .message = std::move(message), .fields = std::move(fields)});
}

void Worker::tell_pauses() {
  if (answers_.fleet.paused() && !std::exchange(course_.paused, true))
    tell(EventKind::paused, "derated is paused: all GPUs are given back",
         {{"who", answers_.fleet.paused_by()}});
  if (answers_.fleet.paused() || !fleet_.is_open()) return;
  EventFields fields{{"gpus", std::to_string(fleet_.gpus().size())}};
  if (!std::exchange(course_.started, true))
    tell(EventKind::started, "derated has its GPUs", std::move(fields));
  else if (std::exchange(course_.paused, false))
    tell(EventKind::resumed, "derated has its GPUs again", std::move(fields));
}

void Worker::tell_lost_policies() {
  if (!fleet_.is_open()) return;
  if (const auto before = records_.history.take_commanded())
    if (auto lost = records_.lost.begin(*before, fleet_.gpus()))
      records_.events.add(*std::move(lost));
  for (const ManagedGpu& gpu : fleet_.gpus())
    if (auto released = records_.lost.take(gpu)) records_.events.add(*std::move(released));
}

// --- GPUs that are left asleep -------------------------------------------------------------------

// Requests that change GPUs wait until they are open, but not for a driver that does not open them.
bool Worker::is_waking() const {
  return sleep_.closed() ||
         (course_.waking && !fleet_.is_open() && clock_.now() < course_.wait_until);
}

// By work, or by somebody who waits for it. With persistence mode on the driver keeps it up anyway.
bool Worker::is_used(const ManagedGpu& gpu) const {
  if (gpu.open.source->capability().persistence_mode.value_or(true)) return true;
  if (gpu.tuned() || (gpu.assigned && gpu.assigned->origin == origins::run)) return true;
  if (answers_.allocations.has(gpu.uuid())) return true;
  const Leftover& left = gpu.leftover;
  if (left.owed || left.look_again || !left.left_alone.empty() || !left.lost.empty()) return true;
  if (!gpu.last || !gpu.last->sample || gpu.last->sample->gpu_utilisation != Fraction(0))
    return true;
  const auto totals = records_.totals.of(gpu.uuid());
  return !totals || totals->processes != 0;
}

std::vector<GpuSleep::Gpu> Worker::sleepy_gpus() {
  const bool watched = answers_.energy.requested() > 0;
  std::vector<GpuSleep::Gpu> out;
  for (const ManagedGpu& gpu : fleet_.gpus())
    out.push_back({.pci_bus_id = gpu.id().pci_bus_id, .in_use = watched || is_used(gpu)});
  return out;
}

void Worker::let_sleep() {
  if (answers_.fleet.paused() || fleet_.opening()) return;
  if (fleet_.is_open()) {
    course_.waking = false;
    if (sleep_.watch_open(sleepy_gpus()) == GpuSleep::Wish::close) close_to_sleep();
  } else if (sleep_.watch_closed() == GpuSleep::Wish::open) {
    constexpr std::chrono::seconds kPatience(10);
    tell(EventKind::awake, "the GPUs are opened again");
    course_.wait_until = clock_.now() + kPatience;
    wake_up();
  } else if (course_.waking && clock_.now() >= course_.open_again) {
    wake_up();
  }
}

// They stay open if one cannot be restored.
void Worker::close_to_sleep() {
  if (auto restored = fleet_.restore("asleep"); !restored.ok()) {
    log_.warning("the GPUs are not left to sleep: " + restored.error().message);
    sleep_.note_not_closed();
    return;
  }
  fleet_.close();
  sleep_.note_closed();
  tell(EventKind::asleep, "nobody uses the GPUs: they are closed, and nothing of them is recorded");
}

void Worker::wake_up() {
  course_.waking = true;
  course_.open_again = clock_.now() + FleetOpener::kRescanEvery;
  fleet_.begin_opening();
}

// If the configuration says govern and no GPU is governed, the status has the reason. Each GPU has
// an event of its own.
std::string Worker::status_sentence() const {
  if (sleep_.closed()) return "the GPUs are asleep";
  if (std::string why = fleet_.governs_nothing(); !why.empty()) return why;
  const auto gpus = fleet_.gpus();
  const auto governed =
      std::count_if(gpus.begin(), gpus.end(), [](const ManagedGpu& gpu) { return gpu.governed; });
  return "governs " + std::to_string(governed) + " of " + std::to_string(gpus.size()) + " GPUs";
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
  answers_.attribution.step(gpus);
}

void Worker::take_snapshot(Figures loop) {
  Snapshot now{
      .beats = work_.tracker.beats(), .time = clock_.now(), .paused = answers_.fleet.paused()};
  now.asleep = is_waking();
  now.trouble = fleet_.governs_nothing();
  for (const ManagedGpu& gpu : fleet_.gpus()) {
    auto known = snapshot_of(gpu, fleet_.bounds().of(gpu.uuid(), clock_.now()));
    if (!known) continue;
    known->totals = records_.totals.of(gpu.uuid());
    known->began = records_.daemon.figures().started;
    known->lost_policy = records_.lost.of(gpu.uuid());
    now.gpus.push_back(*std::move(known));
  }
  for (const auto& [uuid, row] : records_.totals.rows())
    if (fleet_.find(uuid) == nullptr) now.away.push_back({row.id, row.meter.totals()});
  now.loop =
      loop == Figures::counted_anew ? records_.lateness.figures() : records_.board.latest()->loop;
  now.attributes = answers_.attribution.enabled();
  now.attribution = answers_.attribution.pictures();
  records_.tenants.take(now.attribution, clock_.now());
  now.tenants = records_.tenants.tables();
  now.daemon = records_.daemon.figures();
  now.history = records_.history.figures();
  now.services = answers_.services.views();
  now.rules_of_nobody = work_.tracker.rules_of_nobody();
  records_.board.publish(std::move(now));
}

void Worker::take_settings() {
  const Settings& settings = fleet_.settings();
  callers_.roles.take(settings);
  dcgm_names_ = settings.dcgm.names;
  dcgm_parts_ = settings.dcgm.parts;
  work_.tracker.rules(settings);
  work_.tracker.list_every(from_seconds(settings.processes_every_s));
  answers_.energy.windows().set_max_gap(held_for(settings));
  records_.totals.set_max_gap(held_for(settings));
  records_.detector.set_max_gap(held_for(settings));
  sleep_.after(from_seconds(settings.observer.close_idle_after_s));
  answers_.tune.rules(tune_rules(settings));
  answers_.runs.rules(request_rules(origins::run, settings));
  answers_.allocations.rules(request_rules(origins::job, settings), settings.scheduler);
  answers_.pods.rules(request_rules(origins::pod, settings), settings.kubernetes);
  answers_.services.rules(settings);
  answers_.attribution.rules(attributes_ ? attribution_service_rules(settings) : std::nullopt);
  records_.history.rules(settings);
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
  callers_.tokens.load();
  return answers_.config.reload();
}

// The GPUs come before what the services have left to write.
Worker::~Worker() {
  if (!course_.stopped) (void)fleet_.finish().ok();
}

void Worker::refuse_commands() {
  const Error why{Errc::busy, "derated ends"};
  answers_.tokens.refuse(why);
  desk_.queue.refuse(why);
}

Result<void> Worker::stop(Duration patience) {
  course_.stopped = true;
  auto restored = fleet_.finish(patience);  // the GPUs are restored first
  EventFields fields;
  if (!restored.ok()) fields.emplace_back("not_restored", restored.error().message);
  tell(EventKind::stopped, "derated ends", std::move(fields));
  records_.events.settle(EventLines::Which::all);
  answers_.attribution.stop();
  records_.history.stop();
  return restored;
}

}  // namespace derate::cli
