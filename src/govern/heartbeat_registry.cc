#include "govern/heartbeat_registry.h"

#include <algorithm>
#include <utility>

#include "core/fair_place.h"

namespace derate {
namespace {

// How near a source stands to a tenant; beyond kSameUser only a GPU that root names is meant.
constexpr int kItself = 0, kKin = 1, kSameGroup = 2, kSameUser = 3, kRootOnly = 4, kStranger = 5;

constexpr std::size_t kMostNames = 4;

bool is_below(const ProcessFacts& process, const ProcessId& above) {
  return std::any_of(process.ancestors.begin(), process.ancestors.end(),
                     [&](const Ancestor& each) { return is_process(each, above); });
}

std::string joined(const std::set<std::string>& names) {
  std::string out;
  std::size_t count = 0;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    if (++count > kMostNames) return out + "+...";
    out += (out.empty() ? "" : "+") + name;
  }
  return out;
}

}  // namespace

// Makes room for one more source of the user; false: there is no place.
template <class T>
bool HeartbeatRegistry::make_room(std::vector<T>& sources, std::uint32_t uid, Instant now) {
  const auto claim_of = [&](std::uint32_t of, Instant used) {
    const std::uint32_t person = person_(of);
    return PlaceClaim{.person = person, .works = working_.contains(person), .used = used};
  };
  std::vector<PlaceClaim> held;
  for (const T& each : sources) held.push_back(claim_of(each.uid, each.heard));
  const FairPlace place =
      fair_place(held, claim_of(uid, now), {.all = kMostSources, .of_one = kMostOfAUser});
  if (place.instead_of)
    sources.erase(sources.begin() + static_cast<std::ptrdiff_t>(*place.instead_of));
  if (!place.granted) ++counts_.too_many;
  return place.granted;
}

bool HeartbeatRegistry::admit(std::uint32_t uid, Instant now) {
  const std::uint32_t person = person_(uid);
  auto at = std::find_if(allowances_.begin(), allowances_.end(),
                         [&](const Allowance& one) { return one.person == person; });
  if (at == allowances_.end()) {
    if (allowances_.size() >= kMostSources)
      allowances_.erase(std::min_element(
          allowances_.begin(), allowances_.end(),
          [](const Allowance& a, const Allowance& b) { return a.since < b.since; }));
    allowances_.push_back({person, kAtOnce, now});
    at = allowances_.end() - 1;
  }
  const double more = seconds(now - at->since) * kPerSecond;
  at->left = std::min(kAtOnce, at->left + std::max(0.0, more));
  at->since = now;
  if (at->left < 1) {
    ++counts_.too_many;
    return false;
  }
  at->left -= 1;
  return true;
}

HeartbeatRegistry::HeartbeatSource* HeartbeatRegistry::source_for(
    SourceKey key, const std::optional<ProcessFacts>& process, Instant time) {
  const auto known = std::find(sources_.begin(), sources_.end(), key);
  if (known != sources_.end()) {
    const bool another = known->process && process && !is_same_process(*known->process, *process);
    if (!another) return &*known;
    sources_.erase(known);
  }
  if (!make_room(sources_, key.uid, time)) return nullptr;
  sources_.push_back({std::move(key)});
  sources_.back().heard = time;
  sources_.back().number = ++numbers_;
  return &sources_.back();
}

void HeartbeatRegistry::add(const BeatMessage& message, const Sender& sender,
                            const std::optional<ProcessFacts>& process, Instant time) {
  ++counts_.heard;
  const bool own = process && (sender.uid == 0 || process->uid == sender.uid);
  const auto accepted = own ? process : std::nullopt;
  if (accepted) announce(message, sender, *accepted, time);
  if (!message.is_beat()) return;
  // A sender that is gone already and names no process is the same as the user's last such one.
  const std::int64_t pid = message.pid != 0 ? message.pid : accepted ? sender.pid : 0;
  HeartbeatSource* const found = source_for({sender.uid, pid, message.gpu}, accepted, time);
  if (found == nullptr) return;
  HeartbeatSource& source = *found;
  if (accepted) source.process = accepted;
  if (message.done) source.add(progress_of(message, time), runs_);
  source.heard = time;
  if (!message.phase.empty()) source.phase = message.phase;
  if (message.max_loss) source.max_loss = message.max_loss;
}

void HeartbeatRegistry::add_launches(const LaunchProgress& progress,
                                     const std::optional<ProcessFacts>& process) {
  SourceKey key{progress.uid, progress.pid, progress.gpu, ProgressSource::launches};
  if (!progress.state) {
    std::erase(sources_, key);
    return;
  }
  const bool own = process && (progress.uid == 0 || process->uid == progress.uid);
  // If the process has ended, its page does not count for another process with the same PID.
  if (!own || (progress.started != 0 && progress.started != process->started)) return;
  HeartbeatSource* const found = source_for(std::move(key), process, progress.time);
  if (found == nullptr) return;
  HeartbeatSource& source = *found;
  source.process = process;
  source.add(progress_of(*progress.state, progress.time), runs_);
  source.heard = progress.time;
  source.phase = launch_phase_name(progress.state->phase);
}

void HeartbeatRegistry::forget(const ProcessId& ended) {
  std::erase_if(sources_, [&](const HeartbeatSource& each) {
    return each.process && is_same_process(*each.process, ended);
  });
  std::erase_if(announcements_,
                [&](const Announcement& each) { return is_same_process(each.process, ended); });
}

void HeartbeatRegistry::announce(const BeatMessage& message, const Sender& sender,
                                 const ProcessFacts& process, Instant time) {
  if (message.asked.empty() && message.job.empty()) return;
  auto known = std::find_if(announcements_.begin(), announcements_.end(), [&](const auto& one) {
    return one.uid == sender.uid && is_same_process(one.process, process);
  });
  if (known == announcements_.end()) {
    if (!make_room(announcements_, sender.uid, time)) return;
    announcements_.push_back({sender.uid, {}, {}, {}});
    known = announcements_.end() - 1;
  }
  known->process = process;
  known->heard = time;
  if (!message.asked.empty()) known->content.asked = message.asked;
  if (!message.job.empty()) known->content.job = message.job;
}

// How far above or below the process the one stands that was spoken of; empty: it is no kin.
std::optional<std::size_t> HeartbeatRegistry::steps_between(const Announcement& from,
                                                            const ProcessFacts& process) {
  if (from.uid != 0 && process.uid != from.uid) return std::nullopt;
  const ProcessFacts& other = from.process;
  if (is_same_process(other, process)) return std::size_t{0};
  if (other.pid == process.pid) return std::nullopt;
  if (other.session != process.session) return std::nullopt;
  const auto steps = [](const ProcessFacts& below,
                        const ProcessFacts& above) -> std::optional<std::size_t> {
    const auto& list = below.ancestors;
    const auto at = std::find_if(list.begin(), list.end(),
                                 [&](const Ancestor& each) { return is_process(each, above); });
    if (at == list.end() || above.started > below.started) return std::nullopt;
    return static_cast<std::size_t>(at - list.begin()) + 1;
  };
  const auto up = steps(process, other);
  return up ? up : steps(other, process);
}

HeartbeatRegistry::Announced HeartbeatRegistry::announced(const ProcessFacts& process) const {
  Announced out;
  std::optional<std::size_t> asked_from, job_from;
  const auto take = [](std::string& text, std::optional<std::size_t>& from,
                       const std::string& found, std::size_t steps) {
    if (found.empty() || (from && *from <= steps)) return;
    text = found;
    from = steps;
  };
  for (const Announcement& one : announcements_) {
    const auto steps = steps_between(one, process);
    if (!steps) continue;
    take(out.asked, asked_from, one.content.asked, *steps);
    take(out.job, job_from, one.content.job, *steps);
  }
  return out;
}

int HeartbeatRegistry::distance(const HeartbeatSource& source, const GpuProcessTenant& tenant) {
  const ProcessFacts& theirs = tenant.process;
  const bool same_user = theirs.uid && *theirs.uid == source.uid;
  if (!same_user && source.uid != 0) return kStranger;
  if (source.process && theirs.pid > 0) {
    const ProcessFacts& mine = *source.process;
    if (is_same_process(mine, theirs)) return kItself;
    const bool one_session = mine.session == theirs.session;
    if (one_session && (is_below(mine, theirs) || is_below(theirs, mine))) return kKin;
    if (one_session && mine.group == theirs.group) return kSameGroup;
  }
  return same_user ? kSameUser : kRootOnly;
}

namespace {

// The sender may have another view of the machine, so its numbers may mean other GPUs. If it works
// on GPUs (`own`), its number means one of these: the GPU with that number, or else the only one.
void keep_own(const std::string& name, const std::vector<bool>& own, std::vector<bool>& meant) {
  const bool number = name.find_first_not_of("0123456789") == std::string::npos;
  const auto works_on = std::count(own.begin(), own.end(), true);
  if (!number || works_on == 0) return;
  bool any = false;
  for (std::size_t i = 0; i < meant.size(); ++i) any = any || (meant[i] && own[i]);
  for (std::size_t i = 0; i < meant.size(); ++i)
    meant[i] = own[i] && (any ? meant[i] : works_on == 1);
}

}  // namespace

// Adds the source's heartbeat to each GPU that it may speak of; false: there is none.
bool HeartbeatRegistry::place(HeartbeatSource& source, const GpuHeartbeat& heartbeat,
                              std::span<const GpuTenants> gpus,
                              std::vector<std::vector<GpuHeartbeat>>& heartbeats) {
  const bool fresh = heartbeat.fresh;
  std::vector<bool> meant(gpus.size(), source.gpu.empty());
  if (!source.gpu.empty()) {
    std::vector<GpuId> ids;
    for (const GpuTenants& gpu : gpus) ids.push_back(gpu.id);
    const auto named = select_gpus(ids, source.gpu);
    if (!named.ok()) return false;
    for (const int at : *named) meant[static_cast<std::size_t>(at)] = true;
  }
  // An expired source keeps the tenants of its last fresh beat; later ones do not become its own.
  const auto how_far = [&](const GpuProcessTenant& tenant) {
    if (fresh) return distance(source, tenant);
    const bool one = std::any_of(source.of.begin(), source.of.end(), [&](const ProcessId& of) {
      return is_same_process(of, tenant.process);
    });
    return one ? kItself : kStranger;
  };
  const bool named = !source.gpu.empty();
  if (named) {
    std::vector<bool> own;
    for (const GpuTenants& gpu : gpus)
      own.push_back(std::any_of(gpu.tenants.begin(), gpu.tenants.end(),
                                [&](const auto& tenant) { return how_far(tenant) <= kSameGroup; }));
    keep_own(source.gpu, own, meant);
    if (std::count(meant.begin(), meant.end(), true) == 0) return false;
  }
  const int farthest = named ? kRootOnly : kSameUser;
  int best = kStranger;
  std::vector<int> best_of(gpus.size(), kStranger);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!meant[i]) continue;
    for (const GpuProcessTenant& tenant : gpus[i].tenants)
      best_of[i] = std::min(best_of[i], how_far(tenant));
    best = std::min(best, best_of[i]);
  }
  // That it has the same user says which GPU only where that user has a single one.
  const auto with_user = std::count(best_of.begin(), best_of.end(), kSameUser);
  if (!named && best == kSameUser && with_user != 1) return false;
  std::vector<ProcessId> of;
  bool placed = false;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const int wanted = named ? best_of[i] : best;
    GpuHeartbeat on_gpu = heartbeat;
    on_gpu.distance = wanted;
    for (std::size_t t = 0; meant[i] && wanted <= farthest && t < gpus[i].tenants.size(); ++t) {
      if (how_far(gpus[i].tenants[t]) != wanted) continue;
      on_gpu.tenants.push_back(t);
      of.push_back(gpus[i].tenants[t].process);
    }
    const bool by_root = named && meant[i] && fresh && source.uid == 0;
    if (on_gpu.tenants.empty() && !by_root) continue;
    heartbeats[i].push_back(std::move(on_gpu));
    placed = true;
  }
  if (fresh) source.of = std::move(of);
  return placed;
}

// What a process says of itself comes before what it launches.
void HeartbeatRegistry::drop_launches_of_speakers(std::vector<GpuHeartbeat>& heartbeats) {
  std::set<std::size_t> speakers;
  bool of_all = false;  // root speaks of the GPU itself
  for (const GpuHeartbeat& each : heartbeats) {
    if (!each.counts || each.source->of_launches()) continue;
    speakers.insert(each.tenants.begin(), each.tenants.end());
    of_all = of_all || each.tenants.empty();
  }
  const auto speaks = [&](std::size_t tenant) { return speakers.contains(tenant); };
  std::erase_if(heartbeats, [&](const GpuHeartbeat& each) {
    const auto& tenants = each.tenants;
    const bool all_speak = !tenants.empty() && std::all_of(tenants.begin(), tenants.end(), speaks);
    return each.source->of_launches() && (of_all || all_speak);
  });
}

// The heartbeat whose count is the GPU's progress; null: there is none, or counts that cannot be
// added.
const HeartbeatRegistry::GpuHeartbeat* HeartbeatRegistry::leading(
    const GpuTenants& gpu, std::span<const GpuHeartbeat> heartbeats) {
  // The nearest, and of equally near ones the first that spoke.
  const auto nearer = [](const GpuHeartbeat* a, const GpuHeartbeat& b) {
    return a == nullptr || b.distance < a->distance ||
           (b.distance == a->distance &&
            b.source->count.last()->run < a->source->count.last()->run);
  };
  const GpuHeartbeat* nearest = nullptr;
  std::size_t counting = 0;
  for (const GpuHeartbeat& heartbeat : heartbeats) {
    if (!heartbeat.counts) continue;
    ++counting;
    if (nearer(nearest, heartbeat)) nearest = &heartbeat;
  }
  if (counting == 0 || gpu.tenants.size() <= 1) return nearest;
  const bool one_user =
      std::all_of(gpu.tenants.begin(), gpu.tenants.end(), [&](const GpuProcessTenant& one) {
        return one.process.uid == gpu.tenants.front().process.uid;
      });
  if (counting == 1 && one_user) return nearest;
  // Among several, or beside another user's work: that of the process that has most of the SMs. The
  // driver tells nothing of a process that did not work.
  const auto share = [](const GpuProcessTenant& one) {
    return one.sm_utilisation.value_or(Fraction(0));
  };
  std::size_t first = 0;
  for (std::size_t t = 1; t < gpu.tenants.size(); ++t)
    if (share(gpu.tenants[t]) > share(gpu.tenants[first])) first = t;
  for (std::size_t t = 0; t < gpu.tenants.size(); ++t)
    if (t != first && share(gpu.tenants[first]) - share(gpu.tenants[t]) < kLead) return nullptr;
  const GpuHeartbeat* out = nullptr;
  for (const GpuHeartbeat& heartbeat : heartbeats) {
    const bool its = std::find(heartbeat.tenants.begin(), heartbeat.tenants.end(), first) !=
                     heartbeat.tenants.end();
    if (its && heartbeat.counts && nearer(out, heartbeat)) out = &heartbeat;
  }
  return out;
}

GpuWork HeartbeatRegistry::work_of(const GpuTenants& gpu, std::span<const GpuHeartbeat> heartbeats,
                                   const PromiseRules& rules) {
  std::vector<std::optional<Fraction>> from_beats(gpu.tenants.size());
  std::vector<std::optional<Promise>> promises;
  const auto stricter = [](std::optional<Fraction>& of, std::optional<Fraction> other) {
    if (other && (!of || *other < *of)) of = other;
  };
  std::set<std::string> names, phases;
  for (const GpuHeartbeat& heartbeat : heartbeats) {
    for (const std::size_t tenant : heartbeat.tenants)
      stricter(from_beats[tenant], heartbeat.source->max_loss);
    if (heartbeat.tenants.empty() && heartbeat.source->max_loss)
      promises.push_back(promise_of({}, heartbeat.source->max_loss, {{}, rules.max_delta}));
    if (heartbeat.fresh && !heartbeat.source->of_launches()) phases.insert(heartbeat.source->phase);
  }
  for (std::size_t t = 0; t < gpu.tenants.size(); ++t) {
    promises.push_back(promise_of(gpu.tenants[t].process, from_beats[t], rules));
    names.insert(gpu.tenants[t].process.name);
  }
  GpuWork out;
  out.status.promises = promises_to(promises, gpu.policy_delta);
  if (const auto promise = throughput_promise(out.status)) out.promise_from = promise->origin;
  out.status.name = joined(names);
  if (const GpuHeartbeat* lead = leading(gpu, heartbeats)) {
    const HeartbeatSource& source = *lead->source;
    out.status.progress = source.count.last();
    // What launches tell apart lies within what an application names.
    if (!source.of_launches() && !source.phase.empty()) phases = {};
    phases.insert(source.phase);
  }
  out.status.phase = joined(phases);
  return out;
}

std::vector<GpuWork> HeartbeatRegistry::status(std::span<const GpuTenants> gpus,
                                               const PromiseRules& rules, Instant now) {
  counts_.unplaced = 0;
  working_.clear();
  for (const GpuTenants& gpu : gpus)
    for (const GpuProcessTenant& tenant : gpu.tenants)
      if (tenant.process.uid) working_.insert(person_(*tenant.process.uid));
  std::vector<std::vector<GpuHeartbeat>> heartbeats(gpus.size());
  std::vector<std::size_t> gone;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    HeartbeatSource& source = sources_[i];
    const bool fresh = now - source.heard <= source.count.patience();
    const bool counts = source.count.holds(now);
    const bool keeps = fresh || (source.max_loss && !source.of.empty());
    const bool placed = keeps && place(source, {&source, {}, 0, fresh, counts}, gpus, heartbeats);
    if (!placed && !fresh) gone.push_back(i);
    if (!placed && fresh && !source.of_launches()) ++counts_.unplaced;
  }
  std::vector<GpuWork> out;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    drop_launches_of_speakers(heartbeats[i]);
    out.push_back(work_of(gpus[i], heartbeats[i], rules));
  }
  for (auto at = gone.rbegin(); at != gone.rend(); ++at)
    sources_.erase(sources_.begin() + static_cast<std::ptrdiff_t>(*at));
  return out;
}

}  // namespace derate
