#include "govern/fleet/fleet.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "config/config.h"
#include "core/gpu_selection.h"
#include "govern/audit_record.h"
#include "govern/fleet/policy_choice.h"
#include "govern/lease.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

// Whether what is assigned now is what the GPU was governed or observed for before.
bool is_same(const std::optional<Assignment>& before, const Assignment* assigned) {
  const bool was = before && before->governs(), is = assigned != nullptr && assigned->governs();
  if (!was || !is) return was == is;
  return before->policy == assigned->policy && before->tuned == assigned->tuned;
}

struct ConfiguredGpus {
  std::vector<int> here;
  std::string unknown;  // which are not here, and what follows; empty: none
};

// Numbers are given anew when a GPU is gone: where one is not here, what the others mean is not
// known, and none of them counts. UUIDs and bus ids each stand for themselves.
ConfiguredGpus configured_gpus(std::span<const GpuId> ids, const std::string& choice) {
  ConfiguredGpus out;
  std::vector<int> by_number;
  bool numbers_known = true;
  const auto selection = parse_gpu_selection(choice);
  if (!selection.ok()) {
    out.unknown =
        fmt::format("governor.gpus: {}: no GPU is governed by it", selection.error().message);
    return out;
  }
  if (selection->all) {
    for (std::size_t at = 0; at < ids.size(); ++at) out.here.push_back(static_cast<int>(at));
    return out;
  }
  for (const GpuName& name : selection->names) {
    const auto found = select_gpus(ids, name.text);
    const bool number = name.kind == GpuName::Kind::number;
    if (found.ok()) {
      auto& list = number ? by_number : out.here;
      list.insert(list.end(), found->begin(), found->end());
      continue;
    }
    numbers_known = numbers_known && !number;
    out.unknown = fmt::format(
        "governor.gpus: {}: {}", found.error().message,
        number ? "no GPU that is named by a number is governed by it" : "the others are governed");
  }
  if (numbers_known) out.here.insert(out.here.end(), by_number.begin(), by_number.end());
  return out;
}

// Why a GPU that was to be governed is not, to who asked for it.
Error trouble_of(const ManagedGpu& gpu) {
  return {gpu.lease_again ? Errc::busy : Errc::invalid_argument,
          fmt::format("GPU {}: {}", gpu.id().index, gpu.trouble->message)};
}

// "the run of ann", "pod lab/train"
std::string holder(const Assignment& assignment) {
  return assignment.origin->before_who + assignment.who;
}

// Why a request is refused while the assignment `first` has the GPU.
std::string refusal_of(const ManagedGpu& gpu, const Assignment& first) {
  if (first.tuned)
    return fmt::format("GPU {} is tuned for '{}'; `derate release` ends that", gpu.id().index,
                       first.who);
  return fmt::format("GPU {} is governed for {}: what is tried would not be seen", gpu.id().index,
                     holder(first));
}

// "GPU 1 is governed by assure", or that it is observed.
std::string sentence_of(const ManagedGpu& gpu, const char* how, const Result<void>& restored) {
  std::string out = gpu.governed
                        ? fmt::format("GPU {} {} {}", gpu.id().index, how, gpu.policy_name())
                        : fmt::format("GPU {} is observed", gpu.id().index);
  // Its journal stays, and the new policy's actuator restores what that names.
  if (!restored.ok())
    out += fmt::format(" (not yet given back from before: {})", restored.error().message);
  return out;
}

}  // namespace

Fleet::Fleet(FleetOptions options, Settings settings, Clock& clock)
    : options_(std::move(options)),
      settings_(std::move(settings)),
      clock_(clock),
      audit_(options_.audit, options_.owner, options_.log, options_.on_audit),
      leases_(options_.leases),
      leftovers_({options_.journal.value_or(Journal("")), options_.life, options_.run_folder,
                  options_.log, options_.alive},
                 leases_, audit_, clock),
      opener_(options_.open, clock) {
  add_sink([this](const GpuRecord& each) {
    const auto& [gpu, record, before] = each;
    if (auto entry = audit_of(record, before, gpu.domain(), clock_.wall_now()))
      audit_.add(*std::move(entry));
  });
  add_sink([](const GpuRecord& each) {
    if (each.gpu.tuned())
      each.gpu.assigned->tuned->run->add_record(each.gpu.assigned->tuned->gpu, each.record);
  });
}

// --- opening and closing -------------------------------------------------------------------------

std::string Fleet::governs_nothing() const {
  if (!settings_.govern || !is_open()) return "";
  std::string why = unknown_gpus_;
  for (const ManagedGpu& gpu : gpus_) {
    // A GPU of another governor, an operator or a run is governed, though not by the configuration.
    const bool others = gpu.assigned && gpu.assigned->origin != origins::configuration;
    if (gpu.governed || others || gpu.lease_again) return "";
    if (why.empty() && gpu.trouble)
      why = fmt::format("GPU {}: {}", gpu.id().index, gpu.trouble->message);
  }
  if (why.empty()) why = "no GPU is open";
  return "the configuration says govern, and no GPU is governed: " + why;
}

Result<void> Fleet::poll_opening() {
  auto opened = opener_.poll();
  if (!opened) return {};
  open(TRY(*std::move(opened)));
  return {};
}

void Fleet::open(OpenGpus opened) {
  for (const std::string& note : opened.notes) options_.log.warning(note);
  governor_.reset();
  gpus_.clear();
  governor_ = std::make_unique<Governor>(std::vector<GovernedGpu>{}, clock_, options_of_governor());
  add(std::move(opened));
  log_unknown_gpus();
}

// Those of them that are not here.
void Fleet::add(OpenGpus opened) {
  const std::size_t first = gpus_.size();
  for (OpenGpu& each : opened.gpus) {
    if (find(each.source->capability().id.uuid) != nullptr) continue;
    gpus_.push_back({.open = std::move(each), .opening = ++changes_});
    known_.insert(gpus_.back().uuid());
  }
  std::vector<ManagedGpu*> fresh;
  for (std::size_t at = first; at < gpus_.size(); ++at) fresh.push_back(&gpus_[at]);
  start_readings();
  if (options_.journal) leftovers_.restore(fresh, known_);
  log_clocks_between_steps(first);
  configure();
  for (ManagedGpu* gpu : fresh) {
    governor_->add(take_control(*gpu));
    release_lease(*gpu);
  }
  // A configuration that named one of the new ones says something of all from now on.
  if (first > 0) take_assignments({});
}

GovernorOptions Fleet::options_of_governor() const {
  GovernorOptions out = governor_options(settings_);
  out.alive = options_.alive;
  out.resumed = [this](Duration suspended) {
    options_.log.info(
        fmt::format("the machine was suspended for {:.0f} s: settings are written "
                    "again",
                    seconds(suspended)));
  };
  return out;
}

// A call that hangs is waited for until its patience ends, counted from its start. Of calls that
// start together, only the first costs time.
void Fleet::start_readings() {
  for (const ManagedGpu& gpu : gpus_)
    gpu.open.source->start_reading({.energy = false, .activity = false});
}

Result<void> Fleet::restore(const char* why, Duration patience) {
  if (governor_ == nullptr) return {};
  const Instant end = clock_.now() + patience;
  start_readings();
  auto restored = governor_->restore();
  while (!restored.ok() && clock_.now() < end) {
    clock_.sleep_until(clock_.now() + kRestoreAgain);
    restored = governor_->restore();
  }
  for (const ManagedGpu& gpu : gpus_)
    if (leases_.holds(gpu.domain()))
      audit_.add(audit_of_restore(restored, gpu.domain(), why, clock_.wall_now()));
  return restored;
}

// A GPU that cannot be restored keeps none of the others from what is left on them.
Result<void> Fleet::finish(Duration patience) {
  Result<void> out = restore("stopped", patience);
  for (ManagedGpu& gpu : gpus_) {
    options_.alive();
    if (auto done = leftovers_.finish(gpu); !done.ok())
      out = out.ok() ? std::move(done)
                     : Error{out.error().code, out.error().message + "; " + done.error().message};
  }
  return out;
}

void Fleet::close() {
  governor_.reset();
  opener_.stop();
  gpus_.clear();
  ++changes_;
}

// --- the round -----------------------------------------------------------------------------------

std::size_t Fleet::tick(ReadDepth depth) {
  for (std::size_t at = 0; at < gpus_.size(); ++at)
    governor_->bound(at, bounds_.of(gpus_[at].uuid(), clock_.now()));
  const auto records = governor_->tick(depth);
  for (const Record& record : records) take(record);
  return records.size();
}

// Another tool's setting makes another GPU of it: its models hold no more.
void Fleet::note_modes(ManagedGpu& gpu, const Record& record) {
  if (!record.sample || !record.sample->modes || record.time < gpu.modes_held) return;
  const auto& before = gpu.last ? gpu.last->sample : std::nullopt;
  if (before && before->modes == record.sample->modes) return;
  gpu.modes_changed = differ(*record.sample->modes, gpu.open.source->capability().modes);
}

void Fleet::take(const Record& record) {
  ManagedGpu& gpu = gpus_[static_cast<std::size_t>(record.gpu)];
  if (record.estimate.freshness != Freshness::expired)
    gpu.expired_since.reset();
  else if (!gpu.expired_since)
    gpu.expired_since = record.time;
  if (record.saving) {
    if (!gpu.saving) gpu.saving.emplace();
    *gpu.saving += *record.saving;
  }
  note_modes(gpu, record);
  follow_promise(gpu, record);
  const GpuRecord each{gpu, record, gpu.last};
  for (const RecordSink& sink : sinks_) sink(each);
  gpu.last = record;
}

void Fleet::maintain() {
  leave_lost_leases();
  ask_when_many_end();
  for (const auto& run : assignments_.tuned_runs()) run->round(clock_.now());
  for (std::size_t at = 0; at < gpus_.size(); ++at) {
    leave_ended(at);
    maintain(at);
  }
  if (auto more = opener_.rescan(known_.size() > gpus_.size())) {
    const std::size_t before = gpus_.size();
    add(*std::move(more));
    for (std::size_t at = before; at < gpus_.size(); ++at)
      options_.log.info(fmt::format("GPU {} is here now", gpus_[at].id().index),
                        {{"gpu", gpus_[at].uuid()}});
  }
}

// The holder of the lease governs the GPU, or will: two governors must not.
void Fleet::leave_lost_leases() {
  for (const DomainId& domain : leases_.lost()) {
    const ManagedGpu* const gpu = find(domain.name);
    if (gpu == nullptr || gpu->domain() != domain) continue;
    const auto at = static_cast<std::size_t>(gpu - gpus_.data());
    (void)restore_and_observe(at, "another has its lease, whose file was removed").ok();
    leases_.release(domain);
    (void)governor_->replace(at, take_control(gpus_[at]));
    release_lease(gpus_[at]);
  }
}

// Starts readings if the assignments of several GPUs end at the same time.
void Fleet::ask_when_many_end() {
  const Instant now = clock_.now();
  const auto ends = [&](const ManagedGpu& gpu) {
    return gpu.assigned && gpu.assigned->until && *gpu.assigned->until <= now;
  };
  if (std::count_if(gpus_.begin(), gpus_.end(), ends) > 1) start_readings();
}

// What was assigned for a time has come to its end, or to stay: what wins now takes over, without a
// break where it is the same.
void Fleet::leave_ended(std::size_t at) {
  ManagedGpu& gpu = gpus_[at];
  if (!gpu.assigned || !gpu.assigned->until) return;
  const Assignment* const now = assignments_.winner(gpu.uuid(), clock_.now());
  if (!is_same(gpu.assigned, now))
    (void)reassign(at, "what was assigned has ended").ok();
  else if (now != nullptr)
    gpu.assigned = *now;
}

Instant Fleet::next_due() const {
  return gpus_.empty() ? clock_.now() + kIdleRound : governor_->next_due();
}

// Leases that were taken, GPUs that were lost: tried again from time to time.
void Fleet::maintain(std::size_t at) {
  ManagedGpu& gpu = gpus_[at];
  const Instant now = clock_.now();
  if (gpu.leftover.look_again && now >= *gpu.leftover.look_again) {
    leftovers_.look_again(gpu);
    release_lease(gpu);
  }
  if (gpu.lease_again && now >= *gpu.lease_again) (void)governor_->replace(at, take_control(gpu));
  const bool writes = gpu.governed && (gpu.policy() == nullptr || !gpu.policy()->dry_run);
  if (!writes && gpu.leftover.owed) {
    leftovers_.try_again(gpu);
    if (!gpu.leftover.owed) release_lease(gpu);
  }
  if (!gpu.expired_since && !gpu.modes_changed) {
    gpu.reopening = nullptr;
    gpu.reopen_at.reset();
    return;
  }
  const bool lost = gpu.expired_since && now - *gpu.expired_since >= kExpiredBeforeReopen;
  if (!gpu.reopening && (lost || gpu.modes_changed) && now >= gpu.reopen_at.value_or(now)) {
    if (gpu.modes_changed && !gpu.reopen_at)
      options_.log.info(
          fmt::format("GPU {}: another tool changed its settings: opened anew", gpu.id().index),
          {{"gpu", gpu.uuid()}});
    else
      options_.log.debug(fmt::format("GPU {} is opened anew", gpu.id().index),
                         {{"gpu", gpu.uuid()}});
    gpu.reopening = opener_.reopen(gpu.uuid());
    gpu.reopen_at = now + kReopenEvery;
  }
  if (gpu.reopening) reopen(at);
}

void Fleet::reopen(std::size_t at) {
  ManagedGpu& gpu = gpus_[at];
  auto opened = gpu.reopening();
  if (!opened) return;  // a driver that hangs keeps this one thread, and gets no second
  gpu.reopening = nullptr;
  if (!opened->ok() || (*opened)->gpus.size() != 1) return;
  OpenGpu fresh = std::move((*opened)->gpus.front());
  if (!fresh.source->read({.energy = true, .activity = false}).ok()) return;
  if (!gpu.modes_changed)
    options_.log.info(fmt::format("GPU {} is back", fresh.source->capability().id.index),
                      {{"gpu", fresh.source->capability().id.uuid}});
  // What was written before it was lost must still be restored in the end.
  if (auto left = governor_->unrestored(at)) gpu.leftover.owed = std::move(left);
  const OpenGpu old =
      std::exchange(gpu.open, std::move(fresh));  // until the governor has the new one
  gpu.opening = ++changes_;
  (void)governor_->replace(at, take_control(gpu));
  gpu.expired_since.reset();
  gpu.reopen_at.reset();
  gpu.modes_changed = false;
  gpu.modes_held = clock_.now() + kModesHeld;
}

// --- the GPUs ------------------------------------------------------------------------------------

std::vector<GpuId> Fleet::ids() const {
  std::vector<GpuId> out;
  for (const ManagedGpu& gpu : gpus_) out.push_back(gpu.id());
  return out;
}

Result<std::size_t> Fleet::find_one(const std::string& choice) const {
  if (!is_open())
    return Error{Errc::busy, "derated has no GPUs open: it is paused, or still opening them"};
  const std::vector<int> chosen = TRY(select_gpus(ids(), choice));
  if (chosen.size() != 1)
    return Error{Errc::invalid_argument, fmt::format("gpu '{}': allowed is one GPU", choice)};
  return static_cast<std::size_t>(chosen.front());
}

const ManagedGpu* Fleet::find(const std::string& uuid) const {
  const auto at = std::find_if(gpus_.begin(), gpus_.end(),
                               [&](const ManagedGpu& gpu) { return gpu.uuid() == uuid; });
  return at == gpus_.end() ? nullptr : &*at;
}

void Fleet::set_work(std::span<const GpuWork> work) {
  for (std::size_t at = 0; at < std::min(work.size(), gpus_.size()); ++at) {
    governor_->set_work(at, work[at].status);
    gpus_[at].promise_from = work[at].promise_from;
  }
}

void Fleet::read_counter_next(const std::string& uuid, CounterNeed need) {
  for (std::size_t at = 0; at < gpus_.size(); ++at)
    if (gpus_[at].uuid() == uuid) governor_->read_counter_next(at, need);
}

// --- one GPU -------------------------------------------------------------------------------------

JournalHandle Fleet::journal_handle_for(const ManagedGpu& gpu) const {
  if (gpu.leftover.owed) {
    JournalHandle out = *gpu.leftover.owed;
    out.entry.pid = ::getpid();
    out.entry.pid_started = process_start(out.entry.pid);
    return out;
  }
  JournalEntry entry;
  entry.domain = gpu.domain();
  entry.life = options_.life;
  entry.owner = options_.owner;
  entry.pid = ::getpid();
  entry.pid_started = process_start(entry.pid);
  entry.time = clock_.wall_now();
  // The caller has checked that the clock is supported.
  if (auto found = found_lock(gpu.open.source->capability(), settings_); found.ok())
    entry.knobs[kClockLock].found = *found;
  return {*options_.journal, entry};
}

// Without a journal.
Result<GovernedGpu> Fleet::govern_assigned(const ManagedGpu& gpu) const {
  TelemetrySource& source = *gpu.open.source;
  if (gpu.tuned())
    return govern_tuned_gpu(source, gpu.open.control, *gpu.assigned->tuned->run, settings_);
  const PolicyAssignment& wanted = *gpu.assigned->policy;
  ClockControl* const control = wanted.dry_run ? nullptr : gpu.open.control;
  GovernedGpu out = TRY(govern_gpu(source, control, wanted.policy, settings_, options_.models));
  out.tick = policy_tick(wanted.policy.params);
  out.policy_key = policy_key(*wanted.policy.info, wanted.policy.params);
  out.on_drift = drift_rule(settings_);
  return out;
}

Result<GovernedGpu> Fleet::governed(ManagedGpu& gpu) {
  GovernedGpu out = TRY(govern_assigned(gpu));
  if (options_.every_round) out.tick = {};
  if (out.control == nullptr || !options_.journal) return out;
  // Without the journal the found settings are not known: those that Derate left would count as
  // found.
  if (!gpu.leftover.lost.empty()) leftovers_.look_for_lost(gpu);
  if (!gpu.leftover.lost.empty()) {
    gpu.lease_again = clock_.now() + kLeaseEvery;
    return Error{Errc::io, gpu.leftover.lost};
  }
  if (!leases_.holds(gpu.domain())) {
    if (auto lease = leases_.take(gpu.domain()); !lease.ok()) {
      gpu.lease_again = clock_.now() + kLeaseEvery;
      return std::move(lease).error();
    }
    if (!gpu.leftover.owed) leftovers_.look_again(gpu);
    if (!gpu.leftover.left_alone.empty()) {
      leases_.release(gpu.domain());
      gpu.lease_again = clock_.now() + kLeaseEvery;
      return Error{Errc::busy, gpu.leftover.left_alone};
    }
  }
  out.journal_handle = journal_handle_for(gpu);
  return out;
}

// Takes the GPU in hand by what is assigned to it. Where that fails the GPU is observed, and
// `trouble` says why.
GovernedGpu Fleet::take_control(ManagedGpu& gpu, Trouble trouble) {
  options_.alive();  // taking the lease may block
  const Assignment* assigned = assignments_.winner(gpu.uuid(), clock_.now());
  gpu.assigned = assigned == nullptr ? std::nullopt : std::optional(*assigned);
  gpu.governed = false;
  gpu.promise = {};
  gpu.trouble.reset();
  gpu.lease_again.reset();
  if (!gpu.assigned && !unknown_gpus_.empty()) gpu.trouble = Error{Errc::not_found, unknown_gpus_};
  if (!gpu.assigned || !gpu.assigned->governs()) return observe_gpu(*gpu.open.source, settings_);
  auto made = governed(gpu);
  if (made.ok()) {
    gpu.governed = true;
    gpu.envelope = made->envelope;
    if (made->journal_handle) gpu.leftover.owed.reset();  // its actuator has it now
    return *std::move(made);
  }
  gpu.trouble = std::move(made).error();
  gpu.trouble->message = "not governed: " + gpu.trouble->message;
  if (trouble == Trouble::logged)
    options_.log.warning(fmt::format("GPU {}: {}", gpu.id().index, gpu.trouble->message),
                         {{"gpu", gpu.uuid()}});
  return observe_gpu(*gpu.open.source, settings_);
}

// Restores the GPU, which is then only observed. The lease stays.
Result<void> Fleet::restore_and_observe(std::size_t at, const char* why) {
  options_.alive();
  ManagedGpu& gpu = gpus_[at];
  const bool owed = governor_->unrestored(at).has_value();
  auto restored = governor_->restore(at);
  if (owed) audit_.add(audit_of_restore(restored, gpu.domain(), why, clock_.wall_now()));
  if (auto left = governor_->unrestored(at)) gpu.leftover.owed = std::move(left);
  (void)governor_->replace(at, observe_gpu(*gpu.open.source, settings_));
  return restored;
}

// Restored first: who comes next finds the GPU as it was found.
Result<void> Fleet::reassign(std::size_t at, const char* why, Trouble trouble) {
  auto restored = restore_and_observe(at, why);
  (void)governor_->replace(at, take_control(gpus_[at], trouble));
  release_lease(gpus_[at]);
  return restored;
}

// A GPU that is only observed and owes nothing is free for others to govern.
void Fleet::release_lease(const ManagedGpu& gpu) {
  if (!gpu.governed && !gpu.leftover.owed) leases_.release(gpu.domain());
}

// --- who governs what ----------------------------------------------------------------------------

void Fleet::configure() {
  assignments_.withdraw(origins::configuration);
  const auto policy = choose_policy({}, settings_);
  const ConfiguredGpus named = configured_gpus(ids(), settings_.gpus);
  unknown_gpus_ = settings_.govern ? named.unknown : "";
  if (!settings_.govern || !policy.ok()) return;
  for (const int at : named.here)
    assignments_.put(gpus_[static_cast<std::size_t>(at)].uuid(),
                     {.who = "", .policy = PolicyAssignment{*policy, settings_.dry_run}});
}

void Fleet::log_clocks_between_steps(std::size_t first) const {
  for (std::size_t at = first; at < gpus_.size(); ++at)
    for (const std::string& told :
         clocks_between_steps(gpus_[at].open.source->capability(), settings_))
      options_.log.warning(fmt::format("GPU {}: {}", gpus_[at].id().index, told),
                           {{"gpu", gpus_[at].uuid()}});
}

void Fleet::log_unknown_gpus() const {
  if (!unknown_gpus_.empty()) options_.log.warning(unknown_gpus_);
}

// What another has assigned comes before the configuration, and a tuning brings limits of its own.
std::optional<ChosenPolicy> Fleet::policy_under(const Settings& settings, const std::string& uuid,
                                                bool named) const {
  const Assignment* const first = assignments_.winner(uuid, clock_.now());
  if (first != nullptr && first->origin != origins::configuration) {
    if (!first->policy) return std::nullopt;
    return first->policy->policy;
  }
  auto policy = choose_policy({}, settings);
  if (!settings.govern || !named || !policy.ok()) return std::nullopt;
  return *std::move(policy);
}

std::vector<std::string> Fleet::warnings_under(const Settings& settings) const {
  std::vector<std::string> out;
  const ConfiguredGpus named = configured_gpus(ids(), settings.gpus);
  if (settings.govern && is_open() && !named.unknown.empty()) out.push_back(named.unknown);
  for (std::size_t at = 0; at < gpus_.size(); ++at) {
    const ManagedGpu& gpu = gpus_[at];
    const bool is_named =
        std::find(named.here.begin(), named.here.end(), static_cast<int>(at)) != named.here.end();
    const auto policy = policy_under(settings, gpu.uuid(), is_named);
    if (!policy) continue;
    // Made as for a dry run, and thrown away.
    if (const auto made = govern_gpu(*gpu.open.source, nullptr, *policy, settings); !made.ok())
      out.push_back(
          fmt::format("GPU {} is not governed: {}", gpu.id().index, made.error().message));
    else
      for (const std::string& between :
           clocks_between_steps(gpu.open.source->capability(), settings))
        out.push_back(fmt::format("GPU {}: {}", gpu.id().index, between));
  }
  return out;
}

void Fleet::reload(const Settings& settings) {
  const std::set<Scope> changed = changed_scopes(settings_, settings);
  settings_ = settings;
  if (governor_ == nullptr) return;
  configure();
  log_unknown_gpus();
  if (changed.contains(Scope::gpu)) log_clocks_between_steps(0);
  if (changed.contains(Scope::governor)) return begin_anew();
  take_assignments(
      {.governed = changed.contains(Scope::gpu), .observed = changed.contains(Scope::observer)});
}

void Fleet::take_assignments(const Renewed& renewed) {
  start_readings();
  for (std::size_t at = 0; at < gpus_.size(); ++at) {
    ManagedGpu& gpu = gpus_[at];
    if (gpu.tuned()) continue;  // what is wanted else comes when that has ended
    const Assignment* now = assignments_.winner(gpu.uuid(), clock_.now());
    const bool wanted = now != nullptr && now->governs();
    if (!is_same(gpu.assigned, now) || (renewed.governed && wanted)) {
      const auto done = reassign(at, wanted ? "another policy comes" : "released");
      if (!done.ok())
        options_.log.error("not restored: " + done.error().message, {{"gpu", gpu.uuid()}});
    } else if (renewed.observed && !gpu.governed) {
      (void)governor_->replace(at, observe_gpu(*gpu.open.source, settings_));
    } else {
      leave_ended(at);
    }
  }
}

// The rules are the governor's own: everything is given back and begun anew.
void Fleet::begin_anew() {
  if (const auto restored = restore("the governor's settings change"); !restored.ok())
    options_.log.error("not restored: " + restored.error().message);
  std::vector<GovernedGpu> anew;
  for (std::size_t at = 0; at < gpus_.size(); ++at) {
    ManagedGpu& gpu = gpus_[at];
    if (auto left = governor_->unrestored(at)) gpu.leftover.owed = std::move(left);
    (void)governor_->replace(at, observe_gpu(*gpu.open.source, settings_));
    anew.push_back(take_control(gpu));
    release_lease(gpu);
  }
  governor_ = std::make_unique<Governor>(std::move(anew), clock_, options_of_governor());
}

std::vector<Forecast> Fleet::forecast(std::size_t at, std::span<const double> deltas) const {
  return gpus_[at].governed ? governor_->forecast(at, deltas) : std::vector<Forecast>{};
}

Result<std::string> Fleet::assign(std::size_t at, Assignment request) {
  ManagedGpu& gpu = gpus_[at];
  const Assignments before = assignments_;
  // What is commanded for good takes the place of what was tried.
  if (request.origin == origins::command) assignments_.withdraw(gpu.uuid(), origins::unconfirmed);
  const Assignment* const first = assignments_.winner(gpu.uuid(), clock_.now());
  const Verdict verdict = decide(request, first);
  if (verdict == Verdict::refused) {
    Error busy{Errc::busy, refusal_of(gpu, *first)};
    assignments_ = before;
    return busy;
  }
  const std::string first_of = first == nullptr ? "" : holder(*first);
  assignments_.put(gpu.uuid(), request);
  if (verdict == Verdict::waits)
    return fmt::format("GPU {} will be {} when {} has ended", gpu.id().index,
                       request.policy
                           ? fmt::format("governed by {}", request.policy->policy.info->name)
                           : "observed",
                       first_of);
  const auto restored = reassign(at, "another policy comes", Trouble::returned);
  if (!request.governs()) {
    if (!restored.ok()) return restored.error();
    return fmt::format("GPU {} is observed", gpu.id().index);
  }
  if (!gpu.governed) {
    const Error why = trouble_of(gpu);
    assignments_ = before;
    (void)reassign(at, "another policy comes").ok();
    return why;
  }
  return sentence_of(gpu, "is governed by", restored);
}

// --- what is tried -------------------------------------------------------------------------------

const Assignment* Fleet::unconfirmed(std::size_t at) const {
  const Assignment* const found = assignments_.find(gpus_[at].uuid(), origins::unconfirmed);
  return found != nullptr && clock_.now() < *found->until ? found : nullptr;
}

Error Fleet::nothing_tried(const ManagedGpu& gpu) {
  return {Errc::not_found, fmt::format("GPU {}: no policy waits to be confirmed", gpu.id().index)};
}

Result<std::string> Fleet::confirm(std::size_t at, std::string who) {
  ManagedGpu& gpu = gpus_[at];
  const Assignment* const tried = unconfirmed(at);
  if (tried == nullptr) return nothing_tried(gpu);
  Assignment confirmed = *tried;
  confirmed.origin = origins::command;
  confirmed.who = std::move(who);
  confirmed.until.reset();
  const bool is_on = gpu.assigned && gpu.assigned->origin == origins::unconfirmed;
  assignments_.withdraw(gpu.uuid(), origins::unconfirmed);
  assignments_.put(gpu.uuid(), confirmed);
  const char* const name = confirmed.policy->policy.info->name;
  if (!is_on)
    return fmt::format("GPU {} will be governed by {} when {} has ended", gpu.id().index, name,
                       gpu.assigned ? holder(*gpu.assigned) : "another request");
  gpu.assigned = confirmed;
  if (!gpu.governed) return trouble_of(gpu);
  return fmt::format("GPU {} stays governed by {}", gpu.id().index, name);
}

Result<std::string> Fleet::revert(std::size_t at) {
  ManagedGpu& gpu = gpus_[at];
  if (unconfirmed(at) == nullptr) return nothing_tried(gpu);
  assignments_.withdraw(gpu.uuid(), origins::unconfirmed);
  Result<void> restored;
  if (gpu.assigned && gpu.assigned->origin == origins::unconfirmed)
    restored = reassign(at, "what was tried is not kept");
  if (gpu.trouble) return trouble_of(gpu);
  return sentence_of(gpu, "is again governed by", restored);
}

Result<void> Fleet::end_request(const std::string& uuid, RequestOrigin origin,
                                const std::string& who, const char* why) {
  const Assignment* const request = assignments_.find(uuid, origin);
  if (request == nullptr || request->who != who) return {};
  assignments_.withdraw(uuid, origin);
  const ManagedGpu* const gpu = find(uuid);
  if (gpu == nullptr || gpu->tuned()) return {};
  return reassign(static_cast<std::size_t>(gpu - gpus_.data()), why);
}

Result<std::string> Fleet::follow_configuration(std::size_t at) {
  ManagedGpu& gpu = gpus_[at];
  // A service of the configuration comes before its policy.
  const Assignment* configured = assignments_.find(gpu.uuid(), origins::service);
  if (configured == nullptr) configured = assignments_.find(gpu.uuid(), origins::configuration);
  if (configured == nullptr || !configured->policy)
    return Error{Errc::not_found,
                 fmt::format("GPU {}: the configuration does not govern it", gpu.id().index)};
  const std::string name = configured->policy->policy.info->name;
  const RequestOrigin origin = configured->origin;
  assignments_.withdraw(gpu.uuid(), origins::command);
  assignments_.withdraw(gpu.uuid(), origins::unconfirmed);
  const Assignment* const first = assignments_.winner(gpu.uuid(), clock_.now());
  if (first->origin != origin)
    return fmt::format("GPU {} will be governed by {} when {} has ended", gpu.id().index, name,
                       holder(*first));
  if (gpu.assigned && gpu.assigned->origin == origin && gpu.governed)
    return fmt::format("GPU {} is governed by {}, as the configuration has it", gpu.id().index,
                       name);
  const auto restored = reassign(at, "the configuration's policy comes back");
  if (!gpu.governed) return trouble_of(gpu);
  return sentence_of(gpu, "is governed as the configuration has it, by", restored);
}

Result<std::string> Fleet::release(std::size_t at, std::string who) {
  ManagedGpu& gpu = gpus_[at];
  assignments_.put(gpu.uuid(), {.origin = origins::command,
                                .who = std::move(who),
                                .why = "released",
                                .since = clock_.wall_now()});
  assignments_.withdraw(gpu.uuid(), origins::unconfirmed);
  assignments_.withdraw(gpu.uuid(), origins::pod);
  assignments_.withdraw(gpu.uuid(), origins::job);
  assignments_.withdraw(gpu.uuid(), origins::run);
  const auto given = gpu.tuned() ? give_back_tuned(gpu.assigned->who) : Result<void>{};
  auto restored = reassign(at, "released");
  if (!given.ok()) restored = given;
  if (!restored.ok())
    return std::move(restored).error().with(fmt::format("GPU {}: not restored", gpu.id().index));
  return fmt::format("GPU {} is observed", gpu.id().index);
}

// --- tuning --------------------------------------------------------------------------------------

Result<std::vector<std::size_t>> Fleet::free_gpus(const TuningPlan& plan) const {
  std::vector<std::size_t> out;
  for (const std::string& uuid : plan.gpus) {
    const ManagedGpu* gpu = find(uuid);
    if (gpu == nullptr) return Error{Errc::not_found, uuid + ": no such GPU is here"};
    if (gpu->tuned())
      return Error{Errc::busy,
                   fmt::format("{}: is tuned for '{}' already", uuid, gpu->assigned->who)};
    if (gpu->leftover.owed)
      return Error{Errc::busy, uuid + ": is not restored from what governed it before"};
    out.push_back(static_cast<std::size_t>(gpu - gpus_.data()));
  }
  return out;
}

Result<void> Fleet::take_for_tuning(const std::string& name, const TuningPlan& plan) {
  if (name.empty() || !assignments_.gpus_of(origins::tuning, name).empty())
    return Error{Errc::invalid_argument,
                 fmt::format("tuning '{}': allowed is a name that none has", name)};
  if (plan.gpus.empty()) return Error{Errc::invalid_argument, "tuning: of no GPU"};
  if (governor_ == nullptr)
    return Error{Errc::busy, opening() ? "derated is still opening the GPUs"
                                       : "derated is paused: `derate resume` first"};
  const auto places = TRY(free_gpus(plan));
  auto done = begin_tuning(name, plan, places);
  if (done.ok()) return {};
  for (const std::string& uuid : plan.gpus) assignments_.withdraw(uuid, origins::tuning);
  for (const std::size_t at : places) (void)reassign(at, "it is not tuned").ok();
  return done;
}

Result<void> Fleet::begin_tuning(const std::string& name, const TuningPlan& plan,
                                 std::span<const std::size_t> places) {
  start_readings();
  for (const std::size_t at : places) TRY(restore_and_observe(at, "it is tuned"));
  // Only now each shows the limit that was found.
  std::vector<TunableGpu> gpus;
  for (const std::size_t at : places)
    gpus.push_back({&gpus_[at].open.source->capability(), gpus_[at].open.control});
  const auto run = TRY(make_tuned_run(plan, gpus, settings_));
  for (std::size_t i = 0; i < places.size(); ++i) {
    ManagedGpu& gpu = gpus_[places[i]];
    assignments_.put(gpu.uuid(),
                     {.origin = origins::tuning, .who = name, .tuned = TunedPlace{run, i}});
    (void)governor_->replace(places[i], take_control(gpu));
    if (!gpu.governed) return trouble_of(gpu);
    options_.log.info(fmt::format("GPU {} is tuned for '{}'", gpu.id().index, name),
                      {{"gpu", gpu.uuid()}, {"tuning", name}});
  }
  return {};
}

Result<void> Fleet::give_back_tuned(const std::string& name) {
  const auto uuids = assignments_.gpus_of(origins::tuning, name);
  if (uuids.empty()) return Error{Errc::not_found, fmt::format("tuning '{}': none such", name)};
  Result<void> done;
  start_readings();
  for (const std::string& uuid : uuids) {
    assignments_.withdraw(uuid, origins::tuning);
    const ManagedGpu* gpu = find(uuid);
    if (gpu == nullptr) continue;
    auto restored = reassign(static_cast<std::size_t>(gpu - gpus_.data()), "its tuning has ended");
    if (!restored.ok() && done.ok()) done = std::move(restored).error().with(uuid);
  }
  options_.log.info(fmt::format("tuning '{}' has ended", name), {{"tuning", name}});
  return done;
}

Result<void> Fleet::report_work(const std::string& name, const Progress& done) {
  const auto uuids = assignments_.gpus_of(origins::tuning, name);
  if (uuids.empty()) return Error{Errc::not_found, fmt::format("tuning '{}': none such", name)};
  assignments_.find(uuids.front(), origins::tuning)->tuned->run->report_work(done);
  return {};
}

std::optional<TuningState> Fleet::tuning(const std::string& name) const {
  const TunedRun* run = tuned(name);
  return run == nullptr ? std::nullopt : std::optional(tuning_state(*run));
}

const TunedRun* Fleet::tuned(const std::string& name) const {
  const auto uuids = assignments_.gpus_of(origins::tuning, name);
  if (uuids.empty()) return nullptr;
  return assignments_.find(uuids.front(), origins::tuning)->tuned->run.get();
}

}  // namespace derate
