#include "worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/json.h"
#include "config/config.h"
#include "config/paths.h"
#include "core/chip_facts.h"
#include "govern/actuator.h"
#include "govern/audit_record.h"
#include "govern/lease.h"
#include "knob_hands.h"
#include "policy/policy.h"
#include "service/gpu_outcomes.h"

namespace derate::cli {
namespace {

constexpr const char* kTuned = "tune";  // where others have the name of a policy
constexpr Duration kIdleRound = std::chrono::milliseconds(200);  // without GPUs
// Leases of trials, windows of energy, attribution and the state file cannot wait for a GPU that is
// read each minute.
constexpr Duration kLongestWait = std::chrono::seconds(1);

std::optional<ClockRange> found_lock(const Settings& settings) {
  if (!settings.found_lowest_mhz || !settings.found_highest_mhz) return std::nullopt;
  return ClockRange{Megahertz(*settings.found_lowest_mhz), Megahertz(*settings.found_highest_mhz)};
}

// A reading of the power is held for two of the rounds that it is taken in, or a sampler's gap.
Duration held_for(const Settings& settings) {
  constexpr Duration kLeast = std::chrono::seconds(2);
  return std::max(kLeast, from_seconds(2 * settings.observe_every_s));
}

TuneRules tune_rules(const Settings& settings) {
  return {settings.tune_users == "everyone", from_seconds(settings.tune_lease_s)};
}

WorkDesk::Options desk_options(const WorkerOptions& options) {
  WorkDesk::Options out = options.desk;
  out.tell = options.tell;
  return out;
}

AttributionDesk::Options told_by(const WorkerOptions& options) {
  AttributionDesk::Options out = options.attribution;
  out.tell = options.tell;
  return out;
}

}  // namespace

void Lateness::add(Duration late) {
  if (kept_.size() < kKept)
    kept_.push_back(late);
  else
    kept_[rounds_ % kKept] = late;
  ++rounds_;
}

std::optional<Duration> Lateness::quantile(double share) const {
  if (kept_.empty()) return std::nullopt;
  std::vector<Duration> sorted = kept_;
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(sorted.size() - 1));
  std::nth_element(sorted.begin(), sorted.begin() + at, sorted.end());
  return sorted[static_cast<std::size_t>(at)];
}

Worker::Worker(WorkerOptions options, Settings settings, Clock& clock)
    : options_(std::move(options)),
      settings_(std::move(settings)),
      clock_(clock),
      state_(clock, "derated", options_.state_file),
      models_(options_.models, clock,
              [this](const Error& error) { options_.tell("models of work: " + error.message); }),
      desk_(clock, desk_options(options_)),
      energy_(clock, clients_, held_for(settings_)),
      tune_(clock, clients_, energy_,
            {.file = options_.tune_file,
             .rules = tune_rules(settings_),
             .tell = options_.tell,
             .works_on = [this](const std::string& gpu,
                                std::uint32_t uid) { return desk_.works_on(gpu, uid); },
             .knob = knob_hands(*this, clock)}),
      attribution_(clock, told_by(options_), std::nullopt) {
  attribution_.jobs([this](std::int64_t pid) { return desk_.job_of(pid); });
  attribution_.serve(clients_);
  set_up_desk();
  begin_opening();
}

// --- opening -------------------------------------------------------------------------------------

void Worker::begin_opening() { opening_ = options_.open(""); }

void Worker::take_open(OpenGpus opened) {
  for (const std::string& note : opened.notes) options_.tell(note);
  some_failed_ = !opened.notes.empty();
  posts_.clear();
  last_.clear();
  governor_ =
      std::make_unique<Governor>(std::vector<GovernedGpu>{}, clock_, governor_options(settings_));
  for (OpenGpu& gpu : opened.gpus) add_post(std::move(gpu));
  restore_leftovers(posts_);
  tell_unknown_gpus();
  for (Post& post : posts_) {
    post.wanted = by_configuration(post.gpu.source->capability().id);
    governor_->add(seat(post));
    let_go(post);
  }
  first_opening_ = false;
}

void Worker::add_post(OpenGpu gpu) {
  const std::string uuid = gpu.source->capability().id.uuid;
  Post post;
  post.gpu = std::move(gpu);
  post.opening = ++openings_;
  if (const auto kept = kept_leases_.find(uuid); kept != kept_leases_.end()) {
    post.lease = std::move(kept->second);
    kept_leases_.erase(kept);
  }
  known_.insert(uuid);
  posts_.push_back(std::move(post));
  last_.emplace_back();
  tell_gpus();
}

bool Worker::some_missing() const { return some_failed_ || known_.size() > posts_.size(); }

// A GPU that was not there when the others were opened may be there later.
void Worker::look_for_missing() {
  const Instant now = clock_.now();
  if (!some_missing() && !rescan_) return rescan_at_.reset();
  if (!rescan_) {
    if (!rescan_at_) rescan_at_ = now + kRescanEvery;
    if (now < *rescan_at_) return;
    rescan_ = options_.open("");
  }
  auto opened = rescan_();
  if (!opened) return;
  rescan_ = nullptr;
  rescan_at_ = now + kRescanEvery;
  if (!opened->ok()) return;
  some_failed_ = !(*opened)->notes.empty();
  for (OpenGpu& gpu : (*opened)->gpus) {
    const std::string uuid = gpu.source->capability().id.uuid;
    const bool here = std::any_of(posts_.begin(), posts_.end(), [&](const Post& post) {
      return post.gpu.source->capability().id.uuid == uuid;
    });
    if (here) continue;
    options_.tell(fmt::format("GPU {} is here now", gpu.source->capability().id.index));
    add_post(std::move(gpu));
    restore_leftovers(std::span(posts_).last(1));
    posts_.back().wanted = by_configuration(posts_.back().gpu.source->capability().id);
    governor_->add(seat(posts_.back()));
    let_go(posts_.back());
  }
}

// A journal that an earlier process left is restored before anything else is written to its GPU.
void Worker::restore_leftovers(std::span<Post> posts) {
  const auto left = options_.journal.read(options_.life);
  if (!left.ok()) return options_.tell(left.error().message);
  options_.journal.remove_unfinished();
  for (const UnusableJournal& bad : left->unusable) {
    const auto aside = options_.journal.set_aside(bad.path);
    options_.tell(fmt::format("journal '{}' {}: {}", bad.path, bad.why,
                              aside.ok() ? "set aside, not applied" : aside.error().message));
  }
  for (const JournalEntry& entry : left->entries) {
    const auto post = std::find_if(posts.begin(), posts.end(), [&](const Post& p) {
      return p.gpu.source->capability().id.uuid == entry.uuid;
    });
    if (post != posts.end())
      restore_leftover(*post, entry);
    else if (!known_.contains(entry.uuid))
      options_.tell(entry.uuid + ": a journal is left of a GPU that is not here: kept");
  }
}

void Worker::restore_leftover(Post& post, const JournalEntry& entry) {
  if (!post.lease.valid()) {
    auto lease = options_.lease(entry.uuid);
    if (!lease.ok()) return leave_alone(post, lease.error());
    post.lease = *std::move(lease);
  }
  post.left_alone.clear();
  post.left_again.reset();
  JournalEntry left = entry;
  auto restored = restore_settings(*post.gpu.control, left);
  if (restored.ok()) restored = options_.journal.remove(entry.uuid);
  audit({clock_.wall_now(),
         {},
         entry.uuid,
         "restore",
         {},
         {},
         fmt::format("left by {}, pid {}", entry.owner, entry.pid),
         restored.ok() ? "" : restored.error().message});
  if (restored.ok()) return options_.tell(entry.uuid + ": restored what an earlier process left");
  options_.tell(fmt::format("{}: not restored: {}", entry.uuid, restored.error().message));
  post.handed_on = Keeping{options_.journal, entry};
}

// It is looked for again: the governor that has the GPU may die before it has restored it.
void Worker::leave_alone(Post& post, const Error& why) {
  const std::string& uuid = post.gpu.source->capability().id.uuid;
  post.left_by_nobody = !lease_holder(run_directory(), uuid).lives;
  post.left_again = clock_.now() + kLeaseEvery;
  const std::string text = "a journal is left alone: " + why.message;
  if (text != std::exchange(post.left_alone, text)) options_.tell(text);
}

void Worker::look_for_leftover(Post& post) {
  const auto left = options_.journal.read(options_.life);
  if (!left.ok()) {
    post.left_again = clock_.now() + kLeaseEvery;
    return options_.tell(left.error().message);
  }
  for (const JournalEntry& entry : left->entries)
    if (entry.uuid == post.gpu.source->capability().id.uuid) return restore_leftover(post, entry);
  post.left_alone.clear();
  post.left_again.reset();
}

// At the end: a journal that is left, and no governor that lives to restore it.
Result<void> Worker::leftovers_of_nobody() {
  Result<void> out;
  for (Post& post : posts_) {
    if (!post.left_alone.empty()) look_for_leftover(post);
    post.restore_again.reset();
    restore_handed_on(post);
    if (!post.left_alone.empty() && post.left_by_nobody)
      out = Error{Errc::busy, post.left_alone};
    else if (post.handed_on)
      out = Error{Errc::io, post.handed_on->entry.uuid + ": not restored: its journal is kept"};
  }
  return out;
}

// --- who governs what ----------------------------------------------------------------------------

std::vector<GpuId> Worker::ids() const {
  std::vector<GpuId> out;
  for (const Post& post : posts_) out.push_back(post.gpu.source->capability().id);
  return out;
}

// A configuration that names a GPU that is not here governs none: better than others than it means.
void Worker::tell_unknown_gpus() const {
  if (!settings_.govern) return;
  if (const auto named = select_gpus(ids(), settings_.gpus); !named.ok())
    options_.tell("governor.gpus: " + named.error().message + ": no GPU is governed by it");
}

std::optional<Worker::Assignment> Worker::by_configuration(const GpuId& id) const {
  if (const auto by_command = commanded_.find(id.uuid); by_command != commanded_.end())
    return by_command->second;
  if (!settings_.govern) return std::nullopt;
  const auto named = select_gpus(ids(), settings_.gpus);
  if (!named.ok()) return std::nullopt;  // told when the configuration was taken
  const bool meant = std::any_of(named->begin(), named->end(), [&](int at) {
    return posts_[static_cast<std::size_t>(at)].gpu.source->capability().id.uuid == id.uuid;
  });
  if (!meant) return std::nullopt;
  const auto policy = choose_policy({}, settings_);
  if (!policy.ok()) return std::nullopt;
  return Assignment{*policy, settings_.dry_run};
}

// A seat that only looks: its policy never sets a clock, and it could not.
GovernedGpu Worker::observer(Post& post) const {
  const Envelope envelope = whole_envelope(post.gpu.source->capability());
  const PolicyInfo* info = *find_policy("nv-boost");
  GovernedGpu out{post.gpu.source.get(), nullptr,
                  *info->create({envelope, envelope.lowest(), *policy_params(*info, {})}), true,
                  envelope};
  out.tick = from_seconds(settings_.observe_every_s);
  out.observed = true;
  return out;
}

Keeping Worker::keeping_for(Post& post) const {
  if (post.handed_on) {
    Keeping out = *post.handed_on;
    out.entry.pid = ::getpid();
    return out;
  }
  JournalEntry entry;
  entry.uuid = post.gpu.source->capability().id.uuid;
  entry.life = options_.life;
  entry.owner = options_.who;
  entry.pid = ::getpid();
  entry.time = clock_.wall_now();
  entry.found_lock = found_lock(settings_);
  return {options_.journal, entry};
}

Result<GovernedGpu> Worker::wanted_seat(const Post& post) {
  TelemetrySource& source = *post.gpu.source;
  if (post.tuned) {
    const TunedRun& run = *tunings_.at(tuning_of(post)).run;
    return tuned_seat(source, post.gpu.control, run, settings_);
  }
  const Assignment& wanted = *post.wanted;
  ClockControl* const control = wanted.dry_run ? nullptr : post.gpu.control;
  GovernedGpu out = TRY(govern_gpu(source, control, wanted.policy, settings_, &models_));
  out.tick = policy_tick(wanted.policy.params);
  out.on_drift = drift_rule(settings_);
  return out;
}

Result<GovernedGpu> Worker::governed(Post& post) {
  GovernedGpu out = TRY(wanted_seat(post));
  if (out.control == nullptr) return out;
  const std::string& uuid = post.gpu.source->capability().id.uuid;
  if (!post.lease.valid()) {
    auto lease = options_.lease(uuid);
    if (!lease.ok()) {
      post.lease_again = clock_.now() + kLeaseEvery;
      return std::move(lease).error();
    }
    post.lease = *std::move(lease);
    if (!post.handed_on) look_for_leftover(post);
  }
  out.keeping = keeping_for(post);
  return out;
}

// What sits at the post from now on: the wanted policy, or an observer and the reason why.
GovernedGpu Worker::seat(Post& post) {
  post.policy.clear();
  post.trouble.clear();
  post.lease_again.reset();
  post.tuned = !tuning_of(post).empty();
  if (!post.wanted && !post.tuned) return observer(post);
  auto made = governed(post);
  if (made.ok()) {
    post.policy = post.tuned ? kTuned : post.wanted->policy.info->name;
    if (made->keeping) post.handed_on.reset();  // its actuator has it now
    return *std::move(made);
  }
  post.trouble = "not governed: " + made.error().message;
  options_.tell(fmt::format("GPU {}: {}", post.gpu.source->capability().id.index, post.trouble));
  return observer(post);
}

// Gives the GPU back and leaves its seat to an observer. The lease stays.
Result<void> Worker::vacate(std::size_t at, const char* why) {
  Post& post = posts_[at];
  const std::string& uuid = post.gpu.source->capability().id.uuid;
  const bool owed = governor_->unrestored(at).has_value();
  auto restored = governor_->restore(at);
  if (owed) audit(audit_of_restore(restored, uuid, why, clock_.wall_now()));
  if (auto left = governor_->unrestored(at)) post.handed_on = std::move(left);
  (void)governor_->replace(at, observer(post));
  return restored;
}

// Restored first: who comes next finds the GPU as it was found.
Result<void> Worker::reseat(std::size_t at, const char* why) {
  auto restored = vacate(at, why);
  (void)governor_->replace(at, seat(posts_[at]));
  let_go(posts_[at]);
  return restored;
}

Result<void> Worker::assign(std::size_t at, std::optional<Assignment> wanted) {
  Post& post = posts_[at];
  post.wanted = std::move(wanted);
  if (post.tuned) return {};  // it comes when the tuning has ended
  return reseat(at, post.wanted ? "another policy comes" : "released");
}

// What the post's seat carries out; null: it is observed or tuned.
const Worker::Assignment* Worker::governing(const Post& post) {
  return post.policy.empty() || post.tuned || !post.wanted ? nullptr : &*post.wanted;
}

// A GPU that is only observed and owes nothing is free for others to govern.
void Worker::let_go(Post& post) {
  if (!post.policy.empty() || post.handed_on || !post.lease.valid()) return;
  post.lease = UniqueFd();
  options_.release(post.gpu.source->capability().id.uuid);
}

// Of a GPU that nobody governs now: tried again until it succeeds.
void Worker::restore_handed_on(Post& post) {
  const Instant now = clock_.now();
  const Assignment* by = governing(post);
  const bool governed = by != nullptr ? !by->dry_run : !post.policy.empty();
  if (!post.handed_on || governed || now < post.restore_again.value_or(now)) return;
  post.restore_again = now + kRestoreEvery;
  JournalEntry& entry = post.handed_on->entry;
  if (!restore_settings(*post.gpu.control, entry).ok()) return;
  if (const auto removed = options_.journal.remove(entry.uuid); !removed.ok()) {
    options_.tell(removed.error().message);
    return;
  }
  audit({clock_.wall_now(), {}, entry.uuid, "restore", {}, {}, "tried again", {}});
  options_.tell(entry.uuid + ": restored at last");
  post.handed_on.reset();
  post.restore_again.reset();
  let_go(post);
}

// --- the round -----------------------------------------------------------------------------------

Instant Worker::next_due() const {
  const Instant now = clock_.now();
  if (governor_ == nullptr || posts_.empty()) return now + kIdleRound;
  return std::min(governor_->next_due(), now + kLongestWait);
}

Result<void> Worker::step() {
  if (opening_)
    if (auto opened = opening_()) {
      opening_ = nullptr;
      if (opened->ok())
        take_open(**std::move(opened));
      else if (first_opening_)
        return std::move(*opened).error();
      else
        options_.tell("cannot open the GPUs: " + opened->error().message);
    }
  if (governor_ != nullptr) {
    const bool began = !last_.empty() && last_.front();
    const Duration late = clock_.now() - governor_->next_due();
    tell_work();
    for (const std::string& uuid : energy_.take_wanted())
      for (std::size_t at = 0; at < posts_.size(); ++at)
        if (posts_[at].gpu.source->capability().id.uuid == uuid) governor_->read_counter_next(at);
    const auto records = governor_->tick();
    if (began && !records.empty()) lateness_.add(std::max(Duration{}, late));
    take_records(records);
    desk_.begin_listing(desk_gpus());
    for (std::size_t at = 0; at < posts_.size(); ++at) tend(at);
    look_for_missing();
  }
  attribute();
  energy_.settle();
  tune_.step();
  if ((paused_ || governor_ != nullptr) && state_.due()) publish();
  return {};
}

void Worker::set_up_desk() {
  desk_.rules(settings_);
  desk_.list_every(from_seconds(settings_.processes_every_s));
  energy_.windows().set_max_gap(held_for(settings_));
  tune_.rules(tune_rules(settings_));
  attribution_.rules(options_.attribution.name ? attribution_desk_rules(settings_) : std::nullopt);
}

void Worker::attribute() {
  std::vector<AttributionDesk::Gpu> gpus;
  for (const Post& post : posts_) gpus.push_back({post.gpu.source.get(), post.opening});
  attribution_.step(gpus);
}

// Which GPUs are open now, to whoever measures.
void Worker::tell_gpus() {
  std::vector<TuneGpu> gpus;
  for (const Post& post : posts_) {
    const Capability& capability = post.gpu.source->capability();
    const ChipFacts* facts = facts_of_product(capability.id.name);
    // What was learned on a simulated GPU is never taken for real.
    TuneGpu gpu{capability.id,
                (is_simulated(capability.id) ? "simulated " : "") +
                    (facts != nullptr ? std::string(facts->chip) : capability.id.name),
                {}};
    if (capability.power_limits) gpu.highest_limit = capability.power_limits->highest;
    gpus.push_back(std::move(gpu));
  }
  energy_.here(ids());
  tune_.here(std::move(gpus));
}

std::vector<WorkDesk::Gpu> Worker::desk_gpus() const {
  std::vector<WorkDesk::Gpu> out;
  for (const Post& post : posts_) {
    out.push_back({post.gpu.source.get(), post.opening});
    if (const Assignment* by = governing(post)) out.back().policy_delta = policy_delta(by->policy);
  }
  return out;
}

void Worker::tell_work() {
  const auto& work = desk_.update(desk_gpus());
  promise_from_.resize(work.size());
  for (std::size_t at = 0; at < work.size(); ++at) {
    governor_->tell(at, work[at].status);
    promise_from_[at] = work[at].promise_from;
  }
}

void Worker::take_records(std::span<const Record> records) {
  for (const Record& record : records) {
    const auto at = static_cast<std::size_t>(record.gpu);
    Post& post = posts_[at];
    const std::string& uuid = post.gpu.source->capability().id.uuid;
    if (auto entry = audit_of(record, last_[at], uuid, clock_.wall_now())) audit(*std::move(entry));
    note_freshness(post, record);
    if (record.sample) {
      energy_.take(uuid, *record.sample);
      attribution_.watch(uuid, *record.sample);
    }
    if (post.tuned) note_tuned(post, record);
    options_.note(record);
    last_[at] = record;
  }
  for (auto& [name, tuning] : tunings_) tuning.run->round(clock_.now());
}

void Worker::note_freshness(Post& post, const Record& record) {
  if (record.estimate.freshness != Freshness::expired)
    post.expired_since.reset();
  else if (!post.expired_since)
    post.expired_since = record.time;
}

// Leases that were taken, GPUs that were lost: tried again from time to time.
void Worker::tend(std::size_t at) {
  Post& post = posts_[at];
  const Instant now = clock_.now();
  if (post.left_again && now >= *post.left_again) {
    look_for_leftover(post);
    let_go(post);
  }
  if (post.lease_again && now >= *post.lease_again) (void)governor_->replace(at, seat(post));
  restore_handed_on(post);
  if (!post.expired_since) {
    post.reopening = nullptr;
    post.reopen_at.reset();
    return;
  }
  if (!post.reopening && now - *post.expired_since >= kExpiredBeforeReopen &&
      now >= post.reopen_at.value_or(now)) {
    post.reopening = options_.open(post.gpu.source->capability().id.uuid);
    post.reopen_at = now + kReopenEvery;
  }
  if (post.reopening) reopen(at);
}

void Worker::reopen(std::size_t at) {
  Post& post = posts_[at];
  auto opened = post.reopening();
  if (!opened) return;  // a driver that hangs keeps this one thread, and gets no second
  post.reopening = nullptr;
  if (!opened->ok() || (*opened)->gpus.size() != 1) return;
  OpenGpu fresh = std::move((*opened)->gpus.front());
  if (!fresh.source->read({.energy = true, .activity = false}).ok()) return;
  options_.tell(fmt::format("GPU {} is back", fresh.source->capability().id.index));
  // What was written before it was lost must still be restored in the end.
  if (auto left = governor_->unrestored(at)) post.handed_on = std::move(left);
  const OpenGpu old = std::exchange(post.gpu, std::move(fresh));  // until its seat is another's
  post.opening = ++openings_;
  (void)governor_->replace(at, seat(post));
  post.expired_since.reset();
  post.reopen_at.reset();
}

void Worker::audit(AuditEntry entry) {
  entry.who = fmt::format("{}, pid {}", options_.who, ::getpid());
  const auto kept = options_.audit.append(entry);
  if (!kept.ok() && !audit_failed_) options_.tell("no audit log: " + kept.error().message);
  audit_failed_ = !kept.ok();
}

// --- tuning --------------------------------------------------------------------------------------

// Its name; empty: the GPU is not tuned.
std::string Worker::tuning_of(const Post& post) const {
  const std::string& uuid = post.gpu.source->capability().id.uuid;
  for (const auto& [name, tuning] : tunings_)
    if (std::find(tuning.gpus.begin(), tuning.gpus.end(), uuid) != tuning.gpus.end()) return name;
  return {};
}

Result<std::vector<std::size_t>> Worker::free_posts(const TuningPlan& plan) const {
  if (paused_) return Error{Errc::busy, "derated is paused: `derate resume` first"};
  if (governor_ == nullptr) return Error{Errc::busy, "derated is still opening the GPUs"};
  std::vector<std::size_t> out;
  for (const std::string& uuid : plan.gpus) {
    const auto post = std::find_if(posts_.begin(), posts_.end(), [&](const Post& each) {
      return each.gpu.source->capability().id.uuid == uuid;
    });
    if (post == posts_.end()) return Error{Errc::not_found, uuid + ": no such GPU is here"};
    if (const std::string name = tuning_of(*post); !name.empty())
      return Error{Errc::busy, fmt::format("{}: is tuned for '{}' already", uuid, name)};
    if (post->handed_on)
      return Error{Errc::busy, uuid + ": is not restored from what governed it before"};
    out.push_back(static_cast<std::size_t>(post - posts_.begin()));
  }
  return out;
}

Result<void> Worker::take_for_tuning(const std::string& name, const TuningPlan& plan) {
  if (name.empty() || tunings_.contains(name))
    return Error{Errc::invalid_argument,
                 fmt::format("tuning '{}': allowed is a name that none has", name)};
  if (plan.gpus.empty()) return Error{Errc::invalid_argument, "tuning: of no GPU"};
  const auto places = TRY(free_posts(plan));
  Result<void> done;
  for (const std::size_t at : places)
    if (done.ok()) done = vacate(at, "it is tuned");
  // Only now each shows the limit that was found.
  std::vector<TunableGpu> gpus;
  for (const std::size_t at : places)
    gpus.push_back({&posts_[at].gpu.source->capability(), posts_[at].gpu.control});
  if (done.ok()) {
    auto run = make_tuned_run(plan, gpus, settings_);
    if (run.ok())
      tunings_[name] = {plan.gpus, *std::move(run)};
    else
      done = std::move(run).error();
  }
  if (done.ok()) done = seat_tuned(name, places);
  if (done.ok()) return {};
  tunings_.erase(name);
  for (const std::size_t at : places) (void)reseat(at, "it is not tuned").ok();
  return done;
}

Result<void> Worker::seat_tuned(const std::string& name, std::span<const std::size_t> places) {
  for (const std::size_t at : places) {
    Post& post = posts_[at];
    (void)governor_->replace(at, seat(post));
    if (post.policy.empty())
      return Error{post.lease_again ? Errc::busy : Errc::invalid_argument,
                   fmt::format("GPU {}: {}", post.gpu.source->capability().id.index, post.trouble)};
    options_.tell(
        fmt::format("GPU {} is tuned for '{}'", post.gpu.source->capability().id.index, name));
  }
  return {};
}

Result<void> Worker::give_back_tuned(const std::string& name) {
  const auto tuning = tunings_.extract(name);
  if (tuning.empty()) return Error{Errc::not_found, fmt::format("tuning '{}': none such", name)};
  Result<void> done;
  for (std::size_t at = 0; governor_ != nullptr && at < posts_.size(); ++at) {
    const std::string& uuid = posts_[at].gpu.source->capability().id.uuid;
    const auto& gpus = tuning.mapped().gpus;
    if (std::find(gpus.begin(), gpus.end(), uuid) == gpus.end()) continue;
    auto restored = reseat(at, "its tuning has ended");
    if (!restored.ok() && done.ok()) done = std::move(restored).error().with(uuid);
  }
  options_.tell(fmt::format("tuning '{}' has ended", name));
  return done;
}

Result<void> Worker::tell_work(const std::string& name, const Beat& done) {
  const auto tuning = tunings_.find(name);
  if (tuning == tunings_.end())
    return Error{Errc::not_found, fmt::format("tuning '{}': none such", name)};
  tuning->second.run->tell_work(done);
  return {};
}

const TunedRun* Worker::tuned(const std::string& name) const {
  const auto tuning = tunings_.find(name);
  return tuning == tunings_.end() ? nullptr : tuning->second.run.get();
}

void Worker::note_tuned(const Post& post, const Record& record) {
  const auto& [gpus, run] = tunings_.at(tuning_of(post));
  const auto& uuid = post.gpu.source->capability().id.uuid;
  run->note(static_cast<std::size_t>(std::find(gpus.begin(), gpus.end(), uuid) - gpus.begin()),
            record);
}

// --- what others see -----------------------------------------------------------------------------

Worker::Json Worker::state_of(const Record& record) const {
  const auto at = static_cast<std::size_t>(record.gpu);
  const Post& post = posts_[at];
  GpuView view{post.gpu.source->capability(), record, post.policy};
  if (const Assignment* by = governing(post)) {
    view.dry_run = by->dry_run;
    view.promise = promised_performance(by->policy, record.estimate.work);
    if (!by->policy.info->as_published && at < promise_from_.size())
      view.promise_from = promise_from_[at];
  }
  Json json = gpu_state(view);
  if (!post.trouble.empty()) json["trouble"] = post.trouble;
  if (post.trouble.empty() && !post.left_alone.empty() && post.left_by_nobody)
    json["trouble"] = post.left_alone;
  if (const auto* split = attribution_.gpu(post.gpu.source->capability().id.uuid))
    json["attribution"] = split->json();
  return json;
}

void Worker::publish() {
  Json gpus = Json::array();
  for (const auto& record : last_)
    if (record) gpus.push_back(state_of(*record));
  Json loop = {{"rounds", lateness_.rounds()}};
  if (const auto late = lateness_.quantile(0.99)) loop["late_p99_seconds"] = seconds(*late);
  if (const auto late = lateness_.quantile(1)) loop["late_max_seconds"] = seconds(*late);
  state_.publish(std::move(gpus),
                 {{"paused", paused_}, {"loop", std::move(loop)}, {"beats", desk_.beats_json()}});
}

// --- commands ------------------------------------------------------------------------------------

void Worker::reload(const Settings& settings) {
  const std::set<Scope> changed = changed_scopes(settings_, settings);
  settings_ = settings;
  set_up_desk();
  if (governor_ == nullptr) return;
  tell_unknown_gpus();
  if (changed.contains(Scope::governor))
    take_rules();
  else
    take_governing(changed);
}

// The rules are the governor's own: everything is given back and begun anew.
void Worker::take_rules() {
  if (const auto restored = governor_->restore(); !restored.ok())
    options_.tell("not restored: " + restored.error().message);
  std::vector<GovernedGpu> seats;
  for (std::size_t at = 0; at < posts_.size(); ++at) {
    Post& post = posts_[at];
    if (auto left = governor_->unrestored(at)) post.handed_on = std::move(left);
    (void)governor_->replace(at, observer(post));
    post.wanted = by_configuration(post.gpu.source->capability().id);
    seats.push_back(seat(post));
    let_go(post);
  }
  governor_ = std::make_unique<Governor>(std::move(seats), clock_, governor_options(settings_));
}

void Worker::take_governing(const std::set<Scope>& changed) {
  for (std::size_t at = 0; at < posts_.size(); ++at) {
    Post& post = posts_[at];
    auto wanted = by_configuration(post.gpu.source->capability().id);
    if (wanted != post.wanted || (wanted && changed.contains(Scope::gpu))) {
      if (const auto done = assign(at, std::move(wanted)); !done.ok())
        options_.tell("not restored: " + done.error().message);
    } else if (changed.contains(Scope::observer) && post.policy.empty()) {
      (void)governor_->replace(at, observer(post));
    }
  }
}

std::string Worker::handle(std::string_view text, const Peer& peer) {
  const Json request = parse_json(text);
  auto answer = request.is_object()
                    ? obey(request, peer)
                    : Result<Json>(Error{Errc::invalid_argument, "wanted a JSON object"});
  publish();  // who asked wants to see it
  return answer_text(answer);
}

Result<Worker::Json> Worker::obey(const Json& request, const Peer& peer) {
  const auto at = request.find("command");
  const std::string command = at != request.end() && at->is_string() ? at->get<std::string>() : "";
  options_.tell(fmt::format("'{}' from pid {}, uid {}", command, peer.pid, peer.uid));
  constexpr Field kFields[] = {{"gpus", FieldType::text},
                               {"policy", FieldType::text},
                               {"set", FieldType::texts},
                               {"dry_run", FieldType::flag}};
  TRY(check_fields(request, kFields));
  if (command == "policy-set") return set_policy(request);
  if (command == "release") return release_gpus(request);
  if (command == "pause") return pause();
  if (command == "resume") return resume();
  return Error{
      Errc::invalid_argument,
      fmt::format("command '{}': allowed are policy-set, release, pause, resume", command)};
}

Result<std::vector<int>> Worker::chosen(const Json& request) const {
  if (paused_) return Error{Errc::busy, "derated is paused: `derate resume` first"};
  if (governor_ == nullptr) return Error{Errc::busy, "derated is still opening the GPUs"};
  return select_gpus(ids(), request.value("gpus", ""));
}

// A GPU that fails does not keep the others from what was asked: each has its outcome.
Result<Worker::Json> Worker::set_policy(const Json& request) {
  PolicyOptions options;
  options.policy = request.value("policy", "");
  options.assignments = request.value("set", std::vector<std::string>{});
  const Assignment wanted{TRY(choose_policy(options, settings_)), request.value("dry_run", false)};
  std::vector<GpuOutcome> outcomes;
  for (const int i : TRY(chosen(request))) {
    const auto at = static_cast<std::size_t>(i);
    outcomes.push_back({posts_[at].gpu.source->capability().id, govern_by_command(at, wanted)});
  }
  return outcomes_json(outcomes);
}

// Where it fails the GPU is governed as before.
Result<std::string> Worker::govern_by_command(std::size_t at, const Assignment& wanted) {
  Post& post = posts_[at];
  const GpuId& id = post.gpu.source->capability().id;
  if (post.tuned)
    return Error{Errc::busy, fmt::format("GPU {} is tuned for '{}'; `derate release` ends that",
                                         id.index, tuning_of(post))};
  const auto before = post.wanted;
  const auto restored = assign(at, wanted);
  if (post.policy.empty()) {
    const std::string why = fmt::format("GPU {}: {}", id.index, post.trouble);
    const Errc code = post.lease_again ? Errc::busy : Errc::invalid_argument;
    (void)assign(at, before).ok();
    return Error{code, why};
  }
  commanded_.insert_or_assign(id.uuid, wanted);
  std::string done = fmt::format("GPU {} is governed by {}", id.index, post.policy);
  // Its journal stays, and the new policy's actuator restores what that names.
  if (!restored.ok())
    done += fmt::format(" (not yet given back from before: {})", restored.error().message);
  return done;
}

Result<Worker::Json> Worker::release_gpus(const Json& request) {
  std::vector<GpuOutcome> outcomes;
  for (const int i : TRY(chosen(request))) {
    const auto at = static_cast<std::size_t>(i);
    outcomes.push_back({posts_[at].gpu.source->capability().id, release_by_command(at)});
  }
  return outcomes_json(outcomes);
}

// Where it fails the GPU is observed all the same, and its restoring is tried again.
Result<std::string> Worker::release_by_command(std::size_t at) {
  const GpuId& id = posts_[at].gpu.source->capability().id;
  commanded_.insert_or_assign(id.uuid, std::nullopt);
  const auto given = posts_[at].tuned ? give_back_tuned(tuning_of(posts_[at])) : Result<void>{};
  auto restored = assign(at, std::nullopt);
  if (!given.ok()) restored = given;
  if (!restored.ok())
    return std::move(restored).error().with(fmt::format("GPU {}: not restored", id.index));
  return fmt::format("GPU {} is observed", id.index);
}

// Gives everything back and closes every handle, so that MIG changes, resets and profilers can go
// on; the leases stay, so that no other governor comes in between.
Result<Worker::Json> Worker::pause() {
  if (paused_) return Json{{"message", "derated is paused already"}};
  if (opening_) return Error{Errc::busy, "derated is still opening the GPUs"};
  paused_ = true;
  auto restored = stop();
  for (Post& post : posts_)
    if (post.lease.valid())
      kept_leases_[post.gpu.source->capability().id.uuid] = std::move(post.lease);
  governor_.reset();
  rescan_ = nullptr;
  posts_.clear();
  last_.clear();
  // The next sources may lie where these lay: what was begun of these is not asked of those.
  (void)desk_.update({});
  attribution_.step({});
  tune_.let_go();
  tell_gpus();
  TRY(std::move(restored));
  return Json{{"message", "derated is paused: all GPUs are given back, all handles closed"}};
}

Result<Worker::Json> Worker::resume() {
  if (!paused_) return Json{{"message", "derated is not paused"}};
  paused_ = false;
  begin_opening();
  return Json{{"message", "derated opens the GPUs again"}};
}

Result<void> Worker::stop() {
  if (governor_ == nullptr) {
    attribution_.stop();
    return {};
  }
  auto restored = governor_->restore();
  for (const Post& post : posts_)
    if (post.lease.valid())
      audit(audit_of_restore(restored, post.gpu.source->capability().id.uuid,
                             paused_ ? "paused" : "stopped", clock_.wall_now()));
  attribution_.stop();  // the GPUs come first
  if (restored.ok() && !paused_) return leftovers_of_nobody();
  return restored;
}

}  // namespace derate::cli
