#include "service/scheduler/allocation_service.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "govern/fleet/policy_choice.h"
#include "policy/policy_options.h"
#include "service/answers/number.h"

namespace derate {
namespace {

// True: there was one.
bool remove_note(const std::string& path) { return ::unlink(path.c_str()) == 0; }

constexpr const char* kSuspended = "the job is suspended";
constexpr const char* kSetsClocks =
    "Slurm sets the GPUs' clocks for a step of the job (--gpu-freq)";

}  // namespace

AllocationService::AllocationService(Clock& clock, CommandRouter& operators, CommandRouter& clients,
                                     EnergyService& energy, Fleet& fleet, Options options)
    : clock_(clock),
      fleet_(fleet),
      options_(std::move(options)),
      meter_(clock, energy),
      looker_(options_.where) {
  const auto handle = [this](const auto& request, const Peer& peer) { return obey(request, peer); };
  operators.add<AllocationBegin, AllocationEnd>(handle);
  clients.add<AllocationList>(handle);
  fleet_.add_sink([this](const GpuRecord& record) { take(record); });
  if (!options_.ended_file.empty())
    store_ = std::make_unique<StoreWriter<JobStore>>(
        std::make_unique<JobStore>(options_.ended_file,
                                   [log = options_.log](const Error& error) mutable {
                                     log.warning("jobs: " + error.message);
                                   }),
        options_.where);
  load();
}

void AllocationService::rules(RequestRules rules, const SchedulerSettings& settings) {
  rules_ = {std::move(rules), split_names(settings.accounts), split_names(settings.partitions)};
  for (auto& [key, allocation] : running_) choose_wanted(allocation);
}

bool AllocationService::has(const std::string& uuid) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& each) {
    const auto& gpus = each.second.gpus;
    return std::any_of(gpus.begin(), gpus.end(),
                       [&](const AllocatedGpu& gpu) { return gpu.uuid == uuid; });
  });
}

// --- what a round does ---------------------------------------------------------------------------

void AllocationService::step() {
  for (const Key& key : std::exchange(noted_, {}))
    if (const auto at = running_.find(key); at != running_.end())
      end(key, at->second.ended_by.empty() ? "its epilog, while derated did not run"
                                           : at->second.ended_by);
  look();
  take_readings();
  step_gpus();
  std::vector<Key> gone;
  for (auto& [key, allocation] : running_)
    if (allocation.gone && clock_.now() - *allocation.gone >= kGonePatience) gone.push_back(key);
  for (const Key& key : gone) end(key, "neither the job nor its scheduler runs here any more");
  share_out();
  settle();
  const bool due = !saved_ || clock_.now() - *saved_ >= kSaveEvery;
  if (!gone.empty() || (due && !running_.empty())) save();
}

void AllocationService::step_gpus() {
  for (auto& [key, allocation] : running_)
    for (AllocatedGpu& gpu : allocation.gpus) step(allocation, gpu);
}

void AllocationService::step(Allocation& allocation, AllocatedGpu& gpu) {
  const ManagedGpu* const managed = fleet_.find(gpu.uuid);
  if (managed == nullptr) {
    gpu.why = "it is not here";
    return;
  }
  gpu.id = managed->id();
  if (gpu.over) return;
  const Assignment* const ours = fleet_.assignments().find(gpu.uuid, origins::job);
  if (gpu.given != Given::nothing && (ours == nullptr || ours->who != allocation.who)) {
    gpu.given = Given::nothing;
    gpu.over = true;
    gpu.why = "an operator has ended it";
    return;
  }
  Wish wish = wish_of(allocation, gpu);
  if (wish.given != gpu.given && (!gpu.again || clock_.now() >= *gpu.again)) {
    gpu.again.reset();
    if (gpu.given != Given::nothing)
      give_back(allocation, gpu, wish.why.empty() ? "its job requests another policy" : wish.why);
    if (wish.given != Given::nothing)
      give(allocation, gpu, wish.given, static_cast<std::size_t>(managed - fleet_.gpus().data()));
  }
  if (gpu.given == wish.given) gpu.why = std::move(wish.why);
}

void AllocationService::give(Allocation& allocation, AllocatedGpu& gpu, Given given,
                             std::size_t at) {
  const Assignment* const by = fleet_.assignments().of_operators(gpu.uuid, clock_.now());
  Assignment wish{.origin = origins::job, .who = allocation.who};
  const bool policy = given == Given::policy && allocation.wanted;
  if (policy) wish.policy = with_operators_parameters(*allocation.wanted, by);
  const auto done = fleet_.assign(at, std::move(wish));
  const LogFields fields = {{"gpu", gpu.uuid}, {"job", allocation.request.job.id}};
  if (!done.ok()) {
    gpu.why = done.error().message;
    gpu.again = clock_.now() + kAgainAfter;
    (void)fleet_.end_request(gpu.uuid, origins::job, allocation.who, "it failed").ok();
    options_.log.warning(fmt::format("{}: GPU {} is not {}: {}", allocation.who, gpu.id.index,
                                     policy ? "governed for it" : "left alone for it", gpu.why),
                         fields);
    return;
  }
  gpu.given = given;
  if (policy && !gpu.ledger) gpu.ledger.emplace(fleet_.gpus()[at].envelope->highest());
  options_.log.info(
      fmt::format("{}: GPU {} is {}", allocation.who, gpu.id.index,
                  policy ? fmt::format("governed by {}", allocation.wanted->policy.info->name)
                         : "only observed"),
      fields);
}

void AllocationService::give_back(Allocation& allocation, AllocatedGpu& gpu,
                                  const std::string& why) {
  const bool had = std::exchange(gpu.given, Given::nothing) != Given::nothing;
  if (fleet_.is_open()) fleet_.start_readings();
  const auto restored = fleet_.end_request(gpu.uuid, origins::job, allocation.who,
                                           "the scheduler's job has it no more");
  if (!restored.ok())
    options_.log.error("not restored: " + restored.error().message, {{"gpu", gpu.uuid}});
  if (had)
    options_.log.info(
        fmt::format("{}: GPU {} is given back: {}", allocation.who, gpu.id.index, why),
        {{"gpu", gpu.uuid}, {"job", allocation.request.job.id}});
}

// --- energy --------------------------------------------------------------------------------------

// A GPU whose counter covers the time between two daemons begins its windows with that reading.
void AllocationService::share_out() {
  if (!metered_) return;
  std::map<std::string, std::set<JobMeter::Holder>> holders;
  std::set<std::string> waiting;
  for (const ManagedGpu& gpu : fleet_.gpus()) holders[gpu.uuid()];
  for (const auto& [key, allocation] : running_)
    for (const AllocatedGpu& gpu : allocation.gpus) {
      holders[gpu.uuid].insert(allocation.holder);
      if (gpu.counter_before) waiting.insert(gpu.uuid);
    }
  const Instant now = clock_.now();
  for (const auto& [uuid, those] : holders)
    if (!waiting.contains(uuid)) meter_.set_holders(uuid, those, now);
}

// The counter's difference between two daemons belongs to those who had the GPU before.
void AllocationService::take(const GpuRecord& record) {
  const std::string& uuid = record.gpu.uuid();
  const auto& by = record.gpu.assigned;
  const auto& sample = record.record.sample;
  std::vector<std::pair<Allocation*, AllocatedGpu*>> waiting;
  for (auto& [key, allocation] : running_)
    for (AllocatedGpu& gpu : allocation.gpus) {
      if (gpu.uuid != uuid) continue;
      if (gpu.ledger && by && by->origin == origins::job && by->who == allocation.who) {
        gpu.ledger->add(record.record);
        if (allocation.wanted)
          gpu.promise =
              promised_performance(allocation.wanted->policy, record.record.estimate.work);
      }
      if (!sample || !sample->energy) continue;
      if (gpu.counter_before) waiting.emplace_back(&allocation, &gpu);
      gpu.counter_saved = *sample->energy;
      gpu.read_at = sample->time;
    }
  for (const auto& [allocation, gpu] : waiting) {
    const Joules since = *sample->energy - *std::exchange(gpu->counter_before, {});
    if (!gpu->before || since < Joules{}) continue;
    gpu->before->energy =
        gpu->before->energy.value_or(Joules{}) + since / static_cast<double>(waiting.size());
    gpu->before->time = allocation->time(clock_.now());
  }
}

// After all who take records have had them, so that the energy is of the same reading.
void AllocationService::take_readings() {
  for (auto& [key, allocation] : running_)
    for (AllocatedGpu& gpu : allocation.gpus) {
      if (const auto at = std::exchange(gpu.read_at, {}))
        gpu.saved = energy_of(allocation, gpu, meter_, *at);
      if (gpu.counter_before && clock_.now() - allocation.since >= kCounterPatience)
        gpu.counter_before.reset();
    }
}

void AllocationService::settle() {
  meter_.settle();
  std::erase_if(ending_, [&](const Allocation& allocation) {
    if (!meter_.is_settled(allocation.holder)) return false;
    ended_.push_front(view_of(allocation, meter_, *allocation.ended));
    ended_.front().settled = true;
    meter_.forget(allocation.holder);
    if (ended_.size() > kMostEnded) ended_.pop_back();
    keep(ended_.front());
    return true;
  });
}

void AllocationService::keep(const AllocationView& ended) {
  if (!store_) return;
  if (store_->is_full()) {
    options_.log.warning(
        fmt::format("jobs: slurm job {} is not kept: the disk is too slow", ended.job.id));
    return;
  }
  const SchedulerJob& job = ended.job;
  const auto time = [](double unix_seconds) {
    return WallTime{std::chrono::duration_cast<WallTime::duration>(from_seconds(unix_seconds))};
  };
  JobRow row{.scheduler = job.scheduler,
             .cluster = job.cluster,
             .job = job.id,
             .array = job.array,
             .user = job.user,
             .account = job.account,
             .partition = job.partition,
             .node = job.node,
             .uid = job.uid,
             .begun = time(ended.begun_unix_seconds),
             .ended = time(ended.begun_unix_seconds + ended.time_seconds),
             .energy_joules = ended.energy_joules,
             .document = json_text(answer_json(ended))};
  store_->post([row = std::move(row), log = options_.log](JobStore& store) mutable {
    if (const auto added = store.add(row); !added.ok())
      log.warning("jobs: " + added.error().message);
  });
}

// --- what the job does ---------------------------------------------------------------------------

void AllocationService::look() {
  if (looks_.answer.valid()) {
    if (!is_ready(looks_.answer)) return;
    const auto seen = looks_.answer.get();
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (const auto at = running_.find(looks_.jobs[i]); at != running_.end())
        take(at->second, seen[i]);
  }
  if (running_.empty() || (looks_.posted && clock_.now() - *looks_.posted < kLookEvery)) return;
  looks_.posted = clock_.now();
  looks_.jobs.clear();
  std::vector<SchedulerJob> jobs;
  for (const auto& [key, allocation] : running_) {
    looks_.jobs.push_back(key);
    jobs.push_back(allocation.request.job);
  }
  looks_.answer = looker_.post([look = options_.look, jobs = std::move(jobs)] {
    std::vector<JobLook> out;
    for (const SchedulerJob& job : jobs) out.push_back(look(job));
    return out;
  });
}

// The epilog never comes where slurmd is killed. While it runs a job without a control group is
// between two steps.
void AllocationService::take(Allocation& allocation, const JobLook& look) {
  const bool set_clocks = allocation.look.sets_clocks;
  allocation.look = look;
  // The scheduler resets clocks when such a step ends, whoever has set them since.
  allocation.look.sets_clocks |= set_clocks;
  if (look.lives.value_or(false)) {
    if (!std::exchange(allocation.lived, true)) saved_.reset();  // the next daemon must know
    allocation.gone.reset();
  } else if (look.lives && allocation.lived && !look.scheduler_runs) {
    if (!allocation.gone) allocation.gone = clock_.now();
  } else {
    allocation.gone.reset();
  }
  std::string hands_off = allocation.request.hands_off;
  if (hands_off.empty() && allocation.look.sets_clocks) hands_off = kSetsClocks;
  if (hands_off.empty() && look.suspended) hands_off = kSuspended;
  if (hands_off == allocation.hands_off) return;
  allocation.hands_off = std::move(hands_off);
  choose_wanted(allocation);
}

void AllocationService::end(const Key& key, const std::string& by) {
  const auto at = running_.find(key);
  Allocation& allocation = at->second;
  allocation.ended = clock_.now();
  allocation.ended_by = by;
  for (AllocatedGpu& gpu : allocation.gpus) give_back(allocation, gpu, by);
  options_.log.info(fmt::format("{} has ended: {}", allocation.who, by),
                    {{"job", allocation.request.job.id}});
  ending_.push_back(std::move(allocation));
  running_.erase(at);
}

// --- what stands against it ----------------------------------------------------------------------

void AllocationService::choose_wanted(Allocation& allocation) const {
  const AllocationBegin& request = allocation.request;
  allocation.wanted.reset();
  allocation.refused.clear();
  if (!request.governed.value_or(false) || !allocation.hands_off.empty()) return;
  PolicyOptions options{.policy = request.policy, .assignments = {}, .config = {}};
  if (request.delta) options.assignments.push_back(fmt::format("delta={}", *request.delta));
  const Settings& settings = fleet_.settings();
  auto policy = choose_policy(options, settings);
  if (policy.ok())
    allocation.wanted = PolicyAssignment{*std::move(policy), settings.dry_run};
  else
    allocation.refused = policy.error().message;
}

Result<void> AllocationService::check_job(const SchedulerJob& job) const {
  const auto refused = [](const char* what, const std::string& name) {
    return Error{Errc::no_permission, fmt::format("{} '{}' may not have GPUs governed: "
                                                  "[scheduler] {}s does not name it",
                                                  what, name, what)};
  };
  if (!rules_.accounts.empty() && !rules_.accounts.contains(job.account))
    return refused("account", job.account);
  if (!rules_.partitions.empty() && !rules_.partitions.contains(job.partition))
    return refused("partition", job.partition);
  return {};
}

std::vector<const Allocation*> AllocationService::others_with(const std::string& uuid,
                                                              const Allocation& allocation) const {
  std::vector<const Allocation*> out;
  for (const auto& [key, other] : running_)
    for (const AllocatedGpu& theirs : other.gpus)
      if (&other != &allocation && theirs.uuid == uuid) out.push_back(&other);
  return out;
}

AllocationService::Wish AllocationService::wish_of(const Allocation& allocation,
                                                   const AllocatedGpu& gpu) const {
  const auto observed = [&](std::string why, bool by_user) {
    const auto against = against_observing(allocation, gpu, by_user);
    return against ? Wish{Given::nothing, against->message} : Wish{Given::observe, std::move(why)};
  };
  if (const auto others = others_with(gpu.uuid, allocation); !others.empty()) {
    const std::string why = fmt::format("{} has it, too", others.front()->who);
    const bool first = std::all_of(others.begin(), others.end(), [&](const Allocation* other) {
      return allocation.holder < other->holder;
    });
    return first ? observed(why, false) : Wish{Given::nothing, why};
  }
  if (allocation.hands_off == kSuspended) return {Given::nothing, kSuspended};
  if (!allocation.hands_off.empty())
    return observed(allocation.hands_off, allocation.hands_off == kSetsClocks);
  const auto& requested = allocation.request.governed;
  if (!requested) return {};
  if (!*requested) return observed("", true);
  if (const auto against = against_policy(allocation, gpu))
    return {Given::nothing, against->message};
  return {Given::policy, ""};
}

// Observing loses nothing, but it undoes what operators want for the GPU.
std::optional<Error> AllocationService::against_observing(const Allocation& allocation,
                                                          const AllocatedGpu& gpu,
                                                          bool by_user) const {
  const Assignment* const by = fleet_.assignments().of_operators(gpu.uuid, clock_.now());
  if (by != nullptr && by->origin != origins::configuration)
    return Error{Errc::busy, fmt::format("{} has assigned it", by->who)};
  if (!by_user) return std::nullopt;
  if (const auto allowed = check_job(allocation.request.job); !allowed.ok()) return allowed.error();
  const std::vector<gid_t> groups(allocation.request.groups.begin(),
                                  allocation.request.groups.end());
  const auto uid = static_cast<uid_t>(allocation.request.job.uid);
  if (rules_.requests.users.allows(uid, groups)) return std::nullopt;
  return Error{Errc::no_permission,
               fmt::format("user {} may not have GPUs left alone: [scheduler] users is '{}'", uid,
                           rules_.requests.users_text)};
}

std::optional<Error> AllocationService::against_policy(const Allocation& allocation,
                                                       const AllocatedGpu& gpu) const {
  const auto busy = [](const std::string& why) { return std::optional(Error{Errc::busy, why}); };
  const ManagedGpu& managed = *fleet_.find(gpu.uuid);
  if (managed.tuned()) return busy(fmt::format("it is tuned for '{}'", managed.assigned->who));
  if (const auto allowed = check_job(allocation.request.job); !allowed.ok()) return allowed.error();
  if (!allocation.wanted) return Error{Errc::invalid_argument, allocation.refused};
  const std::vector<gid_t> groups(allocation.request.groups.begin(),
                                  allocation.request.groups.end());
  const auto uid = static_cast<uid_t>(allocation.request.job.uid);
  if (const auto allowed = check_request(rules_.requests, uid, groups, *allocation.wanted);
      !allowed.ok())
    return allowed.error();
  const Assignment* const by = fleet_.assignments().of_operators(gpu.uuid, clock_.now());
  if (by == nullptr && managed.trouble)
    return busy("the configuration is not applied there: " + managed.trouble->message);
  if (const auto allowed = beyond_operators(*allocation.wanted, by); !allowed.ok())
    return allowed.error();
  return std::nullopt;
}

// --- requests ------------------------------------------------------------------------------------

// A job that begins again was requeued, and its epilog has not come.
Result<Json> AllocationService::obey(const AllocationBegin& request, const Peer&) {
  TRY(check_request_text(request));
  const Key key{request.job.scheduler, request.job.id};
  if (running_.contains(key)) end(key, "the job has begun again");
  end_before(request);
  if (running_.size() >= kMostAllocations)
    return Error{Errc::busy, fmt::format("{} allocations have not ended: that is all that there "
                                         "may be",
                                         kMostAllocations)};
  if (!metered_) metered_ = clock_.now();
  Allocation made = make_allocation(request, clock_.wall_now(), clock_.now());
  made.holder = next_holder_++;
  choose_wanted(made);
  Allocation& allocation = running_.emplace(key, std::move(made)).first->second;
  options_.log.info(
      fmt::format("{} begins on {}", allocation.who,
                  request.gpus.empty() ? "GPUs that are not known: " + request.hands_off
                                       : fmt::format("{} GPUs", request.gpus.size())),
      {{"job", request.job.id}, {"uid", request.job.uid}});
  if (fleet_.is_open()) fleet_.start_readings();
  share_out();
  step_gpus();  // of GPUs that two jobs have, neither is governed
  save();
  return answer_json(view_of(allocation, meter_, clock_.now()));
}

// A GPU that the scheduler gives away again is not that of a job which has no control group.
void AllocationService::end_before(const AllocationBegin& request) {
  std::vector<Key> over;
  for (const auto& [key, other] : running_) {
    const bool gone = other.lived && other.look.lives && !*other.look.lives;
    const bool same = std::any_of(other.gpus.begin(), other.gpus.end(), [&](const auto& gpu) {
      return std::find(request.gpus.begin(), request.gpus.end(), gpu.uuid) != request.gpus.end();
    });
    if (gone && same) over.push_back(key);
  }
  for (const Key& key : over) end(key, "its GPU has been given to another job");
}

Result<Json> AllocationService::obey(const AllocationEnd& request, const Peer& peer) {
  const Key key{request.scheduler, request.id};
  if (!running_.contains(key)) {  // it may have ended before its epilog
    const auto known = TRY(obey(AllocationList{.id = request.id}, peer));
    return known.at("allocations").front();
  }
  if (fleet_.is_open()) fleet_.start_readings();
  end(key, "its epilog");
  share_out();
  save();
  return answer_json(view_of(ending_.back(), meter_, clock_.now()));
}

Result<Json> AllocationService::obey(const AllocationList& request, const Peer&) const {
  AllocationsAnswer out;
  const Instant now = clock_.now();
  const auto add = [&](AllocationView each) {
    if (request.id.empty() || each.job.id == request.id) out.allocations.push_back(std::move(each));
  };
  for (const auto& [key, allocation] : running_) add(view_of(allocation, meter_, now));
  for (const Allocation& allocation : ending_) add(view_of(allocation, meter_, now));
  for (const AllocationView& each : ended_) add(each);
  if (out.allocations.empty() && !request.id.empty())
    return Error{Errc::not_found,
                 fmt::format("job {}: it has no GPU here", request.id.substr(0, 40))};
  for (const ManagedGpu& gpu : fleet_.gpus())
    if (const auto used = meter_.energy(gpu.uuid(), JobMeter::kNoJob, now))
      out.no_job.push_back({.index = gpu.id().index,
                            .uuid = gpu.uuid(),
                            .energy_joules = number(used->energy),
                            .time_seconds = seconds(used->time)});
  return answer_json(out);
}

// --- from daemon to daemon -----------------------------------------------------------------------

void AllocationService::save() {
  saved_ = clock_.now();
  if (options_.file.empty()) return;
  std::vector<const Allocation*> all;
  for (auto& [key, allocation] : running_) {
    for (AllocatedGpu& gpu : allocation.gpus)
      if (!gpu.counter_saved && !gpu.counter_before)
        gpu.saved = energy_of(allocation, gpu, meter_, *saved_);
    all.push_back(&allocation);
  }
  for (Allocation& allocation : ending_) {
    for (AllocatedGpu& gpu : allocation.gpus)
      gpu.saved = energy_of(allocation, gpu, meter_, *saved_);
    all.push_back(&allocation);
  }
  if (const auto written = write_file_atomically(options_.file, text_of(all), Durable::no, 0600);
      !written.ok())
    options_.log.warning("allocations: " + written.error().message);
}

// Jobs of a file that does not parse have no account until their next prolog.
void AllocationService::load() {
  if (options_.file.empty()) return;
  const auto text = read_file(options_.file);
  if (!text.ok()) return;
  for (Allocation& allocation : allocations_in(*text, clock_.wall_now())) {
    allocation.holder = next_holder_++;
    allocation.since = clock_.now();
    choose_wanted(allocation);
    metered_ = clock_.now();
    const SchedulerJob& job = allocation.request.job;
    const std::string note = fmt::format("{}/{}-{}", options_.notes, job.scheduler, job.id);
    const bool noted = !options_.notes.empty() && remove_note(note);
    if (noted || !allocation.ended_by.empty()) noted_.emplace_back(job.scheduler, job.id);
    running_.emplace(Key{job.scheduler, job.id}, std::move(allocation));
  }
  saved_ = clock_.now();
}

}  // namespace derate
